# SPDX-License-Identifier: Apache-2.0
"""Arrays of a sample in the graph: one node for a field of all elements, or one for each, as steps need them.

See `FoldedFormat` for what is folded, and `TransportLayout` for how the batch of the pipeline is filled.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import attrs
from nvidia.dali import fn, types
from nvidia.dali.data_node import DataNode

from ..engine.dali.graph_definition import (
    BatchPart,
    SourceOutputs,
    is_random,
    merge,
    split,
    without_conditionals,
)
from ..engine.transport import Delivery, FieldPlace
from ..sample_data import GroupFormat, LeafFormat, SampleDataGroup
from ..sample_data.folded_formats import WHOLE_SAMPLE, FoldedFormat, Level
from ..sample_data.graph_mode import Decoding, Joining
from ..sample_data.names import format_paths
from ..workers.packing import TransportLayout
from ..workers.samples import Items

_DT = types.DALIDataType


class NotFoldableError(Exception):
    """A step cannot be applied to folded arrays; says why."""


@attrs.define(eq=False)
class FieldNodes:
    """The nodes of a field of a folded format. At least one of the two forms is there.

    Attributes:
        level: Which elements the field holds.
        changed_by: What set the field last.
        folded: The node of all elements.
        elements: A node for each element.
        present: The nodes of the form that was there at first; the other one is made of it.
    """

    level: Level
    changed_by: str
    folded: DataNode | None = None
    elements: Sequence[DataNode] | None = None

    present: Sequence[DataNode] = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        """Note what is there at first."""
        self.present = [self.folded] if self.folded is not None else self.elements or ()


@attrs.frozen
class FoldedSample:
    """A sample in the graph.

    Attributes:
        format: Its format.
        fields: The nodes of the fields of the folded format.
    """

    format: FoldedFormat
    fields: Sequence[FieldNodes]


@attrs.define
class Folding:
    """Moves fields between their folded form and single elements while a graph is defined.

    Attributes:
        source: What workers send; nothing of it is used where the nodes are given.
        num_slots: Entries of the batch of the pipeline per sample; with 1, nothing is folded.
        own_nodes: Nodes that no step has made.
        merged: Names of fields whose elements were put together.
    """

    source: SourceOutputs
    num_slots: int
    _slots: DataNode | None = attrs.field(default=None, init=False)
    _parts: dict[int, BatchPart] = attrs.field(factory=dict, init=False)
    _element_numbers: dict[int, DataNode] = attrs.field(factory=dict, init=False)
    _selections: dict[tuple[int, int], list[DataNode]] = attrs.field(factory=dict, init=False)
    _folded_of: dict[tuple[str, ...], DataNode] = attrs.field(factory=dict, init=False)  # by its elements
    _sent: dict[tuple[Items, Level], DataNode] = attrs.field(factory=dict, init=False)
    _layouts: dict[int, str] = attrs.field(factory=dict, init=False)  # of what is sent
    _items_of_source: dict[str, Items] = attrs.field(factory=dict, init=False)  # by the name of the source's node
    # By the name of a node that is as sent: what it holds, and the name of the source's node.
    _origins: dict[str, tuple[Items, str]] = attrs.field(factory=dict, init=False)
    # By the name of a node; None: batch of the pipeline.
    _levels: dict[str, Level | None] = attrs.field(factory=dict, init=False)
    own_nodes: list[DataNode] = attrs.field(factory=list, init=False)
    merged: dict[str, None] = attrs.field(factory=dict, init=False)

    # --- what workers send ------------------------------------------------------------------------

    def send(self, items: Items, dtype: types.DALIDataType, level: Level, layout: str | None = None) -> DataNode:
        """Get the node of a field that is folded of the given items."""
        if (items, level) not in self._sent:
            sent = self._add_output(dtype, layout)
            self._layouts.update(dict.fromkeys(items, layout or ""))
            self._items_of_source[sent.name] = items
            node = self.part(level).of(sent)
            self._know(node, level)
            self._origins[node.name] = items, sent.name
            self._sent[items, level] = node
        return self._sent[items, level]

    def _add_output(self, dtype: types.DALIDataType, layout: str | None = None) -> DataNode:
        node = self.source.add(dtype, layout)
        self.own_nodes.append(node)
        return node

    def _know(self, node: DataNode, level: Level | None) -> None:
        self._levels[node.name] = level
        self.own_nodes.append(node)

    def note_given(self, node: DataNode, level: Level = WHOLE_SAMPLE) -> None:
        """Note a node at a level."""
        self._levels[node.name] = level

    # --- what comes out ---------------------------------------------------------------------------

    def delivered(self, sample: FoldedSample) -> tuple[Delivery, tuple[DataNode, ...]]:
        """Decide what is packed, and which outputs of the source are used.

        Returns:
            The places of the fields in the outputs, and the outputs of the graph.
        """
        untouched = [self.sent_items(field) for field in sample.fields]
        reached = self.reached(
            node
            for field, origin in zip(sample.fields, untouched, strict=True)
            if origin is None
            for node in field.present
        )
        packed: list[Items] = []
        outputs: list[DataNode] = []
        places: dict[int, FieldPlace] = {}
        alone: dict[int, Items] = {}  # packed fields of one element
        for leaf, field, origin in zip(sample.format.leaves, sample.fields, untouched, strict=True):
            format = sample.format.full.flat_leaves[leaf.members[0]]
            place = FieldPlace(len(packed), True, format.numpy_dtype, format.is_string, 0, leaf.level.count)
            if origin is not None and not any(self._origins[node.name][1] in reached for node in field.present):
                if len(leaf.members) == 1:
                    alone[leaf.members[0]] = origin
                    continue
                packed.append(origin)
                of_members = [attrs.evolve(place, element=element) for element in range(place.count)]
            else:
                nodes: Sequence[DataNode] = field.present
                if format.is_string:  # padded to the longest of its own
                    nodes = [fn.pad(node, fill_value=0) for node in self.elements(field)]
                place = attrs.evolve(place, is_packed=False, is_text=False)
                of_members = [
                    attrs.evolve(place, output=len(outputs) + index, count=1) for index in range(len(nodes))
                ]
                if len(nodes) < place.count:
                    place = attrs.evolve(place, output=len(outputs))
                    of_members = [attrs.evolve(place, element=element) for element in range(place.count)]
                outputs += nodes
            places.update(zip(leaf.members, of_members, strict=True))
        places.update(_packed_together(sample.format.full, alone, packed))
        for leaf, origin in zip(sample.format.leaves, untouched, strict=True):
            for member, item in zip(leaf.members, origin or (), strict=origin is not None):
                places[member] = attrs.evolve(places[member], layout=self._layouts[item])
        buffer = [self._add_output(_DT.UINT8)] if packed else []
        if packed:  # the first output
            places = {
                member: place if place.is_packed else attrs.evolve(place, output=place.output + 1)
                for member, place in places.items()
            }
        layout = self._layout(tuple(packed), buffer, outputs)
        return Delivery([places[member] for member in range(len(places))], layout), (*buffer, *outputs)

    def sent_items(self, field: FieldNodes) -> Items | None:
        """What workers send for a field that is as they send it, element by element; else None."""
        origins = [self._origins.get(node.name) if node.device == "cpu" else None for node in field.present]
        if None in origins:
            return None
        return tuple(item for origin in origins if origin is not None for item in origin[0])

    def _layout(
        self, packed: tuple[Items, ...], buffer: Sequence[DataNode], outputs: Sequence[DataNode]
    ) -> TransportLayout:
        reached = self.reached(outputs)
        slots = [self._slots] if self._slots is not None and self._slots.name in reached else []
        numbers = {count: node for count, node in self._element_numbers.items() if node.name in reached}
        fields = {name: items for name, items in self._items_of_source.items() if name in reached}
        self.source.keep([*buffer, *slots, *numbers.values(), *(reached[name] for name in fields)])
        return TransportLayout(packed, bool(slots), tuple(numbers), tuple(fields.values()), self.num_slots)

    def reached(self, nodes: Iterable[DataNode]) -> dict[str, DataNode]:
        """All nodes that these are computed from, and they themselves, by name."""
        reached: dict[str, DataNode] = {}
        pending = [*nodes]
        while pending:
            node = pending.pop()
            if node.name not in reached:
                reached[node.name] = node
                pending += inputs_of(node)
        return reached

    # --- folded form and elements -----------------------------------------------------------------

    def part(self, level: Level) -> BatchPart:
        """Get the part of the batch of the pipeline that holds a field of a level."""
        count = level.count
        if count not in self._parts:
            predicate = None
            if count != self.num_slots:
                if self._slots is None:
                    self._slots = self._add_output(_DT.INT32)
                predicate = self._slots < count
                self.own_nodes.append(predicate)
            self._parts[count] = BatchPart(predicate)
        return self._parts[count]

    def folded(self, field: FieldNodes, leaves: Sequence[LeafFormat]) -> DataNode:
        """Get the node of all elements of a field, which have these formats."""
        if field.folded is None:
            selections = self._selection(field.level)
            *before, node = _with_one_layout(field.elements or (), leaves)
            for element, selection in zip(reversed(before), reversed(selections), strict=True):
                node = merge(element, node, selection)
                self._know(node, None)
            self._know(node, field.level)
            field.folded = node
        return field.folded

    def elements(self, field: FieldNodes) -> Sequence[DataNode]:
        """Get the nodes of the single elements of a field."""
        if field.elements is None and field.folded is not None:
            field.elements = self._parted(field.folded, field.level, WHOLE_SAMPLE)
            self._folded_of[_key(field.elements)] = field.folded
            origin = self._origins.get(field.folded.name)
            if origin is not None:
                for item, element in zip(origin[0], field.elements, strict=True):
                    self._origins[element.name] = (item,), origin[1]
        return field.elements or ()

    def in_one_batch(
        self, decode: Decoding, join: Joining, clips: Sequence[Sequence[DataNode]]
    ) -> Sequence[DataNode]:
        """Decode and join clips; those of one length as elements of one array, wherever they are.

        Args:
            decode: Defines the decoder.
            join: Defines what joins the frames of a clip.
            clips: Nodes of the image files of each clip, of the whole sample.
        """
        alike: dict[int, list[int]] = {}
        made: dict[int, DataNode] = {}
        for number, files in enumerate(clips):
            if self.sent_items(FieldNodes(WHOLE_SAMPLE, "", None, files)) is None:  # a step has made them
                made[number] = join([*map(decode, files)])
            else:
                alike.setdefault(len(files), []).append(number)
        for numbers in alike.values():
            for start in range(0, len(numbers), self.num_slots):
                together = numbers[start : start + self.num_slots]
                nodes = self._clips(decode, join, [clips[number] for number in together])
                made.update(zip(together, nodes, strict=True))
        return [made[number] for number in range(len(clips))]

    def _clips(self, decode: Decoding, join: Joining, clips: Sequence[Sequence[DataNode]]) -> Sequence[DataNode]:
        """Decode frame by frame: those of one time are then together for all clips, and are joined as they are."""
        num_clips, by_frame = len(clips), [*zip(*clips, strict=True)]
        level, num_at_once = Level(((),), (num_clips,)), self.num_slots // num_clips
        frames: list[DataNode] = []
        with without_conditionals():
            for start in range(0, len(by_frame), num_at_once):
                files = [*itertools.chain(*by_frame[start : start + num_at_once])]
                of_files = Level(((),), (len(files),))
                sent = self.sent_items(FieldNodes(of_files, "", None, files)) or ()
                node = decode(self.send(sent, _DT.UINT8, of_files))
                self._know(node, of_files)
                frames += self._parted(node, of_files, level)
            with self.part(level).defining(False, lambda made, part: self.note_given(part, level)) as to_part:
                clip = to_part(join(frames))
            self._know(clip, level)
            return self.elements(FieldNodes(level, "", clip))

    def _parted(self, node: DataNode, level: Level, of_parts: Level) -> Sequence[DataNode]:
        """Cut a folded field into parts of some elements each: the first ones, the next ones, and so on."""
        parts = []
        for selection in self._selection(level, of_parts.count):
            part, node = split(node, selection)
            self._know(node, None)
            parts.append(part)
        parts.append(node)
        for part in parts:
            self._know(part, of_parts)
        return parts

    def _selection(self, level: Level, size: int = 1) -> list[DataNode]:
        """Predicates that cut a folded field into parts: that of the first elements, of the rest, and so on."""
        count = level.count
        if count == size:
            return []
        if (count, size) not in self._selections:
            if count not in self._element_numbers:
                self._element_numbers[count] = self._add_output(_DT.INT32)
            rest = self.part(level).of(self._element_numbers[count])
            self._selections[count, size] = []
            for end in range(size, count, size):
                selection = rest < end
                self._selections[count, size].append(selection)
                _, rest = split(rest, selection)
                self.own_nodes += [selection, rest]
        return self._selections[count, size]

    def values(self, sample: FoldedSample, is_folded: bool, checks_types: bool) -> SampleDataGroup:
        """Get a sample as steps see it: with folded arrays, or with all elements."""
        shown = sample.format.folded if is_folded else sample.format.full
        data = SampleDataGroup.from_format(shown)
        data.set_apply_mapping(False)
        data.set_do_check_type(checks_types)
        if is_folded:
            for leaf, field in zip(sample.format.leaves, sample.fields, strict=True):
                if field.folded is None:
                    elements = range(leaf.level.count)
                    self.merged[format_paths([leaf.level.path_of(leaf.path, each) for each in elements])] = None
            leaves = sample.format.full.flat_leaves
            for leaf, field in zip(sample.format.leaves, sample.fields, strict=True):
                self.folded(field, [leaves[member] for member in leaf.members])
            data.set_data([field.folded for field in sample.fields])
            return data
        nodes: list[Any] = [None] * shown.num_leaves
        for leaf, field in zip(sample.format.leaves, sample.fields, strict=True):
            for member, node in zip(leaf.members, self.elements(field), strict=True):
                nodes[member] = node
        data.set_data(nodes)
        return data

    def sample_of(
        self, data: SampleDataGroup, nodes: Sequence[DataNode], before: FoldedSample | None, changed_by: str
    ) -> FoldedSample:
        """Take the result of a step that was applied to single elements.

        Args:
            data: The result.
            nodes: Its nodes.
            before: The sample before the step: fields that it left alone stay folded.
            changed_by: Name of the step.
        """
        new = FoldedFormat.of(data.format, self.num_slots)
        unchanged = {} if before is None else {_key(field.elements): field for field in before.fields}
        fields = []
        for leaf in new.leaves:
            elements = [nodes[member] for member in leaf.members]
            field = unchanged.get(_key(elements))
            if field is None or field.level.count != leaf.level.count:
                folded = self._folded_of.get(_key(elements))  # which has been cut into these
                field = FieldNodes(leaf.level, changed_by, folded, elements)
                if folded is not None:
                    self.note_given(folded, leaf.level)
                elif len(elements) == 1:
                    field.folded = elements[0]
                for element in elements:
                    self.note_given(element)
            field.level = leaf.level  # an array may have been renamed
            fields.append(field)
        return FoldedSample(new, fields)

    def sample_of_folded(
        self, data: SampleDataGroup, nodes: Sequence[DataNode], before: FoldedSample, changed_by: str
    ) -> FoldedSample:
        """Take the result of a step that was applied to folded arrays.

        Raises:
            NotFoldableError: The step has changed an array as a whole, or mixed what belongs to several elements.
        """
        new = FoldedFormat.of_folded(data.format, before.format.lengths)
        if new is None:
            raise NotFoldableError("it changes the number of elements of an array, or is about one of them")
        unchanged = {_key([field.folded]): field for field in before.fields}
        fields = []
        for leaf, node in zip(new.leaves, nodes, strict=True):
            field = unchanged.get(_key([node]))
            if field is None or field.level != leaf.level:
                node = self._at_level(node, leaf.level, leaf.path)
                field = FieldNodes(leaf.level, changed_by, node, [node] if leaf.level.count == 1 else None)
            fields.append(field)
        again = FoldedFormat.of(new.full, self.num_slots)
        if again.folded == new.folded:
            return FoldedSample(new, fields)
        # There is an array more or less in it that can be folded.
        sample = FoldedSample(new, fields)
        elements = self.values(sample, False, True)
        return self.sample_of(elements, [*elements.get_data()], sample, changed_by)

    def _at_level(self, node: DataNode, level: Level, path: object) -> DataNode:
        known = self._level_of(node)
        if known is None:  # the same in all entries of the batch of the pipeline
            node = self.part(level).of(node)
        elif known != level:
            raise NotFoldableError(f"it makes {path} of what belongs to {known or 'the whole sample'}")
        self.note_given(node, level)
        return node

    def _level_of(self, node: DataNode) -> Level | None:
        """Find out the level of a node that a step has made; None for one that depends on no input.

        Raises:
            NotFoldableError: It is made of nodes of several levels, or of random numbers of DALI.
        """
        pending = [node]
        while pending:
            last = pending[-1]
            if last.name in self._levels:
                pending.pop()
                continue
            inputs = inputs_of(last)
            unknown = [each for each in inputs if each.name not in self._levels]
            if unknown:
                pending += unknown
                continue
            levels = {self._levels[each.name] for each in inputs} - {None}
            if not inputs and is_random(last):
                raise NotFoldableError("it draws with DALI's random operators")
            if len(levels) > 1:
                together = " and ".join(sorted(str(each) or "the whole sample" for each in levels))
                raise NotFoldableError(f"it works on {together} together")
            level = next(iter(levels), None)
            has_constants = any(self._levels[each.name] is None for each in inputs)
            if level is not None and level.count != self.num_slots and has_constants:
                raise NotFoldableError("it needs constants for arrays of several lengths")
            self._levels[last.name] = level
            pending.pop()
        return self._levels[node.name]


def _packed_together(
    format: GroupFormat, alone: Mapping[int, Items], packed: list[Items]
) -> Iterator[tuple[int, FieldPlace]]:
    """Pack fields; those of all elements of an array in one block, so that these can be stacked as they are.

    Args:
        format: Format of the output.
        alone: For the flat position of each of the fields what workers send.
        packed: What is packed; the fields are added.

    Yields:
        For each of the fields its place.
    """
    for leaf in FoldedFormat.of(format, format.num_leaves).leaves:
        members = [member for member in leaf.members if member in alone]
        together = [members] if len(members) == len(leaf.members) else [[member] for member in members]
        for block in together:
            of_members = format.flat_leaves[leaf.members[0]]
            place = FieldPlace(len(packed), True, of_members.numpy_dtype, of_members.is_string, 0, len(block))
            packed.append(tuple([item for member in block for item in alone[member]]))
            for element, member in enumerate(block):
                yield member, attrs.evolve(place, element=element)


def inputs_of(node: DataNode) -> list[DataNode]:
    """Get the nodes that a node is computed from."""
    flat: Iterable[Any] = itertools.chain.from_iterable(
        each if isinstance(each, list) else [each] for each in node.source.inputs
    )
    return [each for each in flat if isinstance(each, DataNode)]


def _key(nodes: Sequence[DataNode | None] | None) -> tuple[str, ...]:
    return tuple([repr(node) for node in nodes or ()])


def _with_one_layout(elements: Sequence[DataNode], leaves: Sequence[LeafFormat]) -> Sequence[DataNode]:
    """Give elements that may be images the layout that steps know, or none: DALI refuses to merge several ones.

    Steps on some of the elements alone have set layouts there.
    """
    if len(elements) < 2 or any(leaf.ndim is not None and leaf.ndim < 3 for leaf in leaves):
        return elements
    known = {leaf.content.layout for leaf in leaves if leaf.content.layout}
    layout = known.pop() if len(known) == 1 else ""
    return [fn.reshape(element, layout=layout) for element in elements]
