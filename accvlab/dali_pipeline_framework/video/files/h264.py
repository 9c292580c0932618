# SPDX-License-Identifier: Apache-2.0
"""What packets of H.264 tell (ITU-T H.264): where gradual decoder refresh begins, and field pictures.

Field pictures are those of interlaced H.264 whose frames are coded as two pictures each, which can be packets of
their own.
"""

from __future__ import annotations

# nal_unit_type
_SLICES = (1, 2, 5)  # non-IDR, data partition A, IDR
_IDR = 5
_SEI = 6
_SPS = 7
_RECOVERY_POINT = 6  # payloadType of an SEI message
_PROFILES_WITH_CHROMA_FORMAT = (100, 110, 122, 244, 44, 83, 86, 118, 128, 138, 139, 134, 135)  # profile_idc
_MOST_BYTES = 400  # of an SPS that are read


def begins_refresh(packet: bytes) -> bool:
    """Whether gradual decoder refresh begins here: the whole picture is right only some frames later.

    Containers mark such packets as key frames. But a decoder that starts there can deliver wrong frames without
    an error (FFmpeg does where ``frame_num`` is 0).

    Args:
        packet: An access unit, in Annex B format (start codes) or with NAL unit lengths of four bytes.
    """
    for unit in _nal_units(packet):
        unit_type = _nal_unit_type(unit)
        if unit_type in _SLICES:
            return False
        if unit_type == _SEI:
            payload = _recovery_point(unit)
            if payload:  # begins with recovery_frame_cnt, an Exp-Golomb code: 0 is the single bit 1
                return not payload[0] & 0x80
    return False


def _nal_units(packet: bytes) -> list[bytes]:
    """Split a packet in Annex B format, or with lengths of four bytes, into its NAL units."""
    units: list[bytes] = []
    position = 0
    while position + 4 < len(packet):
        end = position + 4 + int.from_bytes(packet[position : position + 4], "big")
        units.append(packet[position + 4 : end])
        position = end
    # A length from 256 to 511 begins as a start code does.
    if position != len(packet) and packet.startswith((b"\0\0\1", b"\0\0\0\1")):
        return packet.split(b"\0\0\1")[1:]
    return units


def _nal_unit_type(unit: bytes) -> int:
    """Get the type of a NAL unit; 0 of an empty one."""
    return unit[0] & 0x1F if unit else 0


def _recovery_point(unit: bytes) -> bytes:
    """Payload of the recovery point message in an SEI NAL unit; empty where there is none."""
    position = 1
    while position + 2 < len(unit):
        numbers = []  # payloadType and payloadSize, each coded as 0xFF bytes and a last byte
        for _ in range(2):
            number = 0
            while position < len(unit) - 1 and unit[position] == 0xFF:
                number += 255
                position += 1
            numbers.append(number + unit[position])
            position += 1
        payload_type, size = numbers
        if payload_type == _RECOVERY_POINT:
            return unit[position : position + size]
        position += size
    return b""


class FieldPictureSearch:
    """Looks for field pictures in a stream. Most streams have none, as their sequence parameter sets (SPS) tell.

    Attributes:
        is_possible: Whether an SPS that was seen allows for field pictures (``frame_mbs_only_flag`` is 0).
        has_skipped: Whether the counter of reference pictures (``frame_num``) skips, see `count_picture`.
        orders: For each IDR picture and those that follow it, their places in the order of presentation
            (``PicOrderCnt``).
    """

    def __init__(self, extradata: bytes | None) -> None:
        """Read the SPS of the container: ``avcC`` (AVCDecoderConfigurationRecord), or Annex B."""
        self.is_possible = False
        self._allows_gaps = False
        self._last_reference: int | None = None
        self._order_bits = 0  # log2_max_pic_order_cnt_lsb
        self.has_skipped = False
        self.orders: list[list[int]] = []
        self._seen_sps: set[bytes] = set()
        self._frame_num_bits = 4  # log2_max_frame_num
        self._has_separate_colour_planes = False
        for unit in _sps_of_extradata(extradata or b""):
            self._read_sps(unit)

    def is_found_in(self, packet: bytes) -> bool:
        """Whether a packet (Annex B, or with NAL unit lengths) has a field picture."""
        for unit in _nal_units(packet):
            unit_type = _nal_unit_type(unit)
            if unit_type == _SPS:
                self._read_sps(unit)
            elif unit_type in _SLICES and self.is_possible:
                return self._has_field_pic_flag(unit)
        return False

    def count_picture(self, packet: bytes, is_key: bool) -> None:
        """Follow the counters of pictures, which skip where pictures are missing (7.4.3)."""
        for unit in _nal_units(packet):
            unit_type = _nal_unit_type(unit)
            if unit_type == _SPS:
                self._read_sps(unit)
            elif unit_type in _SLICES:
                if self.is_possible or self._allows_gaps or len(self._seen_sps) != 1:
                    return
                bits = _BitReader(unit[1:32])
                number = self._read_frame_num(bits)
                last, modulus = self._last_reference, 1 << self._frame_num_bits
                if unit[0] & 0x60:  # nal_ref_idc
                    self._last_reference = number
                # It starts again from 0 at some points, which are not all key frames.
                if not is_key and last is not None and number >= 2 and number not in (last, (last + 1) % modulus):
                    self.has_skipped = True
                if unit_type == _IDR:
                    bits.read_ue()  # idr_pic_id
                    self.orders.append([])
                if self._order_bits and self.orders:
                    order, of_group = bits.read_bits(self._order_bits), self.orders[-1]
                    turns = round(((of_group[-1] if of_group else 0) - order) / (1 << self._order_bits))
                    of_group.append(order + (turns << self._order_bits))
                return

    def _read_sps(self, unit: bytes) -> None:
        """Read seq_parameter_set_data (7.3.2.1.1) up to frame_mbs_only_flag."""
        if unit in self._seen_sps:
            return
        self._seen_sps.add(unit)
        bits = _BitReader(unit[1:_MOST_BYTES])
        profile_idc = bits.read_bits(8)
        bits.read_bits(16)  # constraint_set flags, level_idc
        bits.read_ue()  # seq_parameter_set_id
        self._has_separate_colour_planes = False
        if profile_idc in _PROFILES_WITH_CHROMA_FORMAT:
            chroma_format_idc = bits.read_ue()
            if chroma_format_idc == 3:
                self._has_separate_colour_planes = bool(bits.read_bits(1))
            bits.read_ue()  # bit_depth_luma_minus8
            bits.read_ue()  # bit_depth_chroma_minus8
            bits.read_bits(1)  # qpprime_y_zero_transform_bypass_flag
            if bits.read_bits(1):  # seq_scaling_matrix_present_flag
                for number in range(12 if chroma_format_idc == 3 else 8):
                    if bits.read_bits(1):  # seq_scaling_list_present_flag
                        bits.skip_scaling_list(16 if number < 6 else 64)
        self._frame_num_bits = bits.read_ue() + 4  # log2_max_frame_num_minus4
        pic_order_cnt_type = bits.read_ue()
        self._order_bits = 0
        if pic_order_cnt_type == 0:
            self._order_bits = bits.read_ue() + 4  # log2_max_pic_order_cnt_lsb_minus4
        elif pic_order_cnt_type == 1:
            bits.read_bits(1)  # delta_pic_order_always_zero_flag
            bits.read_ue()  # offset_for_non_ref_pic (se(v) has the length of ue(v))
            bits.read_ue()  # offset_for_top_to_bottom_field
            for _ in range(bits.read_ue()):  # num_ref_frames_in_pic_order_cnt_cycle
                bits.read_ue()  # offset_for_ref_frame
        bits.read_ue()  # max_num_ref_frames
        self._allows_gaps = bool(bits.read_bits(1))  # gaps_in_frame_num_value_allowed_flag
        bits.read_ue()  # pic_width_in_mbs_minus1
        bits.read_ue()  # pic_height_in_map_units_minus1
        frame_mbs_only_flag = bits.read_bits(1)
        self.is_possible = self.is_possible or not frame_mbs_only_flag

    def _has_field_pic_flag(self, unit: bytes) -> bool:
        """Read the header of a slice (7.3.3) up to field_pic_flag."""
        if len(self._seen_sps) > 1:
            return True  # which SPS the slice refers to is not looked for
        bits = _BitReader(unit[1:32])
        self._read_frame_num(bits)
        return bool(bits.read_bits(1))

    def _read_frame_num(self, bits: _BitReader) -> int:
        for _ in range(3):  # first_mb_in_slice, slice_type, pic_parameter_set_id
            bits.read_ue()
        bits.read_bits(2 * self._has_separate_colour_planes)  # colour_plane_id
        return bits.read_bits(self._frame_num_bits)


def _sps_of_extradata(extradata: bytes) -> list[bytes]:
    units: list[bytes] = []
    if extradata[:1] != b"\1":  # Annex B
        units += _nal_units(extradata)
    else:
        position = 6
        for _ in range(extradata[5] & 0x1F if len(extradata) > 5 else 0):  # numOfSequenceParameterSets
            end = position + 2 + int.from_bytes(extradata[position : position + 2], "big")
            units.append(extradata[position + 2 : end])
            position = end
    return [unit for unit in units if _nal_unit_type(unit) == _SPS]


class _BitReader:
    """Reads numbers from the payload (RBSP) of a NAL unit; bits behind its end are 1."""

    def __init__(self, content: bytes) -> None:
        content = content.replace(b"\0\0\3", b"\0\0")  # emulation prevention
        self._value = int.from_bytes(content + b"\xff" * 16, "big")
        self._num_left = 8 * (len(content) + 16)

    def read_bits(self, width: int) -> int:
        self._num_left = max(self._num_left - width, 0)
        return self._value >> self._num_left & ((1 << width) - 1)

    def read_ue(self) -> int:
        """Read an unsigned Exp-Golomb code, ue(v)."""
        num_zeros = 0
        while num_zeros < 32 and not self.read_bits(1):
            num_zeros += 1
        return (1 << num_zeros) - 1 + self.read_bits(num_zeros)

    def skip_scaling_list(self, length: int) -> None:
        """Read scaling_list (7.3.2.1.1.1)."""
        last = following = 8
        for _ in range(length):
            if following:
                code = self.read_ue()
                following = (last + (code + 1) // 2 * (1 if code % 2 else -1)) % 256
            last = following or last
