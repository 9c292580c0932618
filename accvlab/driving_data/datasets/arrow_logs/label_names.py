# SPDX-License-Identifier: Apache-2.0
"""Names of the labels of boxes in logs of py123d, whose files hold only their numbers: of its version 0.7."""

from __future__ import annotations

_NAMES = {
    "AV2SensorBoxDetectionLabel": (
        "animal articulated_bus bicycle bicyclist bollard box_truck bus construction_barrel construction_cone "
        "dog large_vehicle message_board_trailer mobile_pedestrian_crossing_sign motorcycle motorcyclist "
        "official_signaler pedestrian railed_vehicle regular_vehicle school_bus sign stop_sign stroller "
        "traffic_light_trailer truck truck_cab vehicular_trailer wheelchair wheeled_device wheeled_rider"
    ),
    "DefaultBoxDetectionLabel": (
        "ego vehicle train two_wheeler person animal traffic_sign traffic_cone traffic_light barrier "
        "generic_object other"
    ),
    "GriffinBoxDetectionLabel": "pedestrian car truck bus motorcycle bicycle",
    "KITTI360BoxDetectionLabel": (
        "bicycle box bus car caravan lamp motorcycle person pole rider smallpole stop traffic_light "
        "traffic_sign trailer train trash_bin truck vending_machine"
    ),
    "NuPlanBoxDetectionLabel": "vehicle bicycle pedestrian traffic_cone barrier czone_sign generic_object",
    "NuScenesBoxDetectionLabel": (
        "vehicle_car vehicle_truck vehicle_bus_bendy vehicle_bus_rigid vehicle_construction "
        "vehicle_emergency_ambulance vehicle_emergency_police vehicle_trailer vehicle_bicycle "
        "vehicle_motorcycle human_pedestrian_adult human_pedestrian_child "
        "human_pedestrian_construction_worker human_pedestrian_personal_mobility "
        "human_pedestrian_police_officer human_pedestrian_stroller human_pedestrian_wheelchair "
        "movable_object_trafficcone movable_object_barrier movable_object_pushable_pullable "
        "movable_object_debris static_object_bicycle_rack animal"
    ),
    "NureasoningBoxDetectionLabel": (
        "vehicle_car vehicle_personal_mobility_bycicle human other_trafficcone other_temporary_trafficsign "
        "other_other vehicle_door vehicle_truck vehicle_bus vehicle_motorcycle vehicle_bicycle "
        "human_pedestrian construction_traffic_cone"
    ),
    "PandasetBoxDetectionLabel": (
        "animals_bird animals_other bicycle bus car cones construction_signs emergency_vehicle "
        "medium_sized_truck motorcycle motorized_scooter other_vehicle_construction_vehicle "
        "other_vehicle_pedicab other_vehicle_uncommon pedestrian pedestrian_with_object "
        "personal_mobility_device pickup_truck pylons road_barriers rolling_containers semi_truck signs "
        "temporary_construction_barriers towed_object train tram_subway"
    ),
    "PhysicalAIAVBoxDetectionLabel": (
        "automobile person bus heavy_truck other_vehicle protruding_object rider stroller trailer animal "
        "train_or_tram_car trolley_bus"
    ),
    "TruckDriveBoxDetectionLabel": (
        "bike passenger_car person road_obstruction semi_truck_cab semi_truck_trailer vehicle traffic_sign "
        "emergency_vehicle"
    ),
    "WODMotionBoxDetectionLabel": "type_unset type_vehicle type_pedestrian type_cyclist type_other",
    "WODPerceptionBoxDetectionLabel": "type_unknown type_vehicle type_pedestrian type_sign type_cyclist",
}

# By name of the class of labels, in the order of their numbers.
LABEL_NAMES: dict[str, tuple[str, ...]] = {name: tuple(names.split()) for name, names in _NAMES.items()}
