"""Importable helpers of the tests; spawned workers import them too."""
