"""Keys that are made for a random number, by undoing SplitMix64."""

from __future__ import annotations

_MODULUS = 2**64


def unmix(value: int) -> int:
    """The value that is mixed to ``value``: the operations are undone, the last one first."""
    value ^= (value >> 31) ^ (value >> 62)
    value = value * pow(0x94D049BB133111EB, -1, _MODULUS) % _MODULUS
    value ^= (value >> 27) ^ (value >> 54)
    value = value * pow(0xBF58476D1CE4E5B9, -1, _MODULUS) % _MODULUS
    return value ^ (value >> 30) ^ (value >> 60)


def key_with_first_number(bits: int) -> int:
    """The key whose number 0 has these 64 random bits."""
    return (unmix(bits) - 0x9E3779B97F4A7C15) % _MODULUS
