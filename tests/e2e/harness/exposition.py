# SPDX-License-Identifier: Apache-2.0
"""Prometheus' text format, read strictly enough to notice a malformed line."""
import re

_SAMPLE = re.compile(r'^([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{(.*)\})? ([^ ]+)(?: -?\d+)?$')
_LABEL = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\]|\\.)*)"(,|$)')
_UNESCAPED = {r"\\": "\\", r"\"": '"', r"\n": "\n"}


def _labels(text):
    labels, at = [], 0
    while at < len(text):
        match = _LABEL.match(text, at)
        assert match, f"malformed labels: {text!r}"
        value = re.sub(r'\\[\\"n]', lambda m: _UNESCAPED[m.group(0)], match.group(2))
        labels.append((match.group(1), value))
        at = match.end()
    assert len({name for name, _ in labels}) == len(labels), f"a label twice: {text!r}"
    return frozenset(labels)


class Metrics:
    """{name: {frozenset of (label, value): number}}, with look-ups by some of the labels."""

    def __init__(self, text):
        self.text = text
        self.samples = {}
        self.types = {}
        for line in text.splitlines():
            if line.startswith("# TYPE "):
                _, _, name, kind = line.split(" ")
                assert name not in self.types, f"{name} declared twice"
                self.types[name] = kind
            if not line or line.startswith("#"):
                continue
            match = _SAMPLE.match(line)
            assert match, f"malformed line: {line!r}"
            series = self.samples.setdefault(match.group(1), {})
            labels = _labels(match.group(2) or "")
            assert labels not in series, f"series twice: {line!r}"
            series[labels] = float(match.group(3))

    def series(self, name, **labels):
        """[(labels as dict, value)] of the series that have these labels."""
        wanted = set(labels.items())
        return [(dict(found), value) for found, value in self.samples.get(name, {}).items()
                if wanted <= found]

    def by(self, name, label, **labels):
        """{value of `label`: sum} over the series that have these labels."""
        result = {}
        for found, value in self.series(name, **labels):
            result[found[label]] = result.get(found[label], 0) + value
        return result

    def value(self, name, **labels):
        """Sum of the series that have these labels; 0 without any."""
        return sum(value for _, value in self.series(name, **labels))
