# SPDX-License-Identifier: Apache-2.0
"""The boards of helm/ingero/dashboards as Grafana would ask Prometheus, and what they may say."""
import glob
import json
import math
import os
import re

from .waiting import wait_until

REPOSITORY = os.path.realpath(os.path.join(os.path.dirname(__file__), "..", "..", ".."))
FOLDER = os.path.join(REPOSITORY, "helm", "ingero", "dashboards")
MAY_BE_EMPTY = "May be empty: "
# What Grafana puts for them; the rest are the boards' own variables.
TIMES = {"$__rate_interval": "10s", "$__range": "5m"}


def names():
    return sorted(os.path.basename(path) for path in glob.glob(os.path.join(FOLDER, "*.json")))


class Board:
    def __init__(self, name):
        with open(os.path.join(FOLDER, name), encoding="utf-8") as file:
            self.json = json.load(file)
        self.variables = {v["name"]: v for v in self.json["templating"]["list"]}

    def panels(self):
        """All, rows and what is in folded rows too."""
        for panel in self.json["panels"]:
            yield panel
            yield from panel.get("panels", [])

    def panel(self, title):
        found = [panel for panel in self.panels() if panel["title"] == title]
        assert len(found) == 1, (title, len(found))
        return found[0]

    def queries(self):
        """(panel, target)"""
        return [(panel, target) for panel in self.panels() for target in panel.get("targets", [])]

    def label_values(self):
        """variable: (selector, label), of those that ask Prometheus."""
        found = {}
        for name, variable in self.variables.items():
            if variable["type"] == "query":
                found[name] = re.fullmatch(r"label_values\((.*), (\w+)\)", variable["query"]).groups()
        return found

    def filled(self, expression, **chosen):
        """With what Grafana would put for the variables: All, where nothing is chosen."""
        for name, text in TIMES.items():
            expression = re.sub(re.escape(name) + r"\b", text, expression)
        for name, variable in self.variables.items():
            expression = re.sub(rf"\${name}\b", chosen.get(name, variable.get("allValue", "")), expression)
        assert "$" not in expression, expression
        return expression

    def expression(self, title, ref_id="A", **chosen):
        target, = (t for t in self.panel(title)["targets"] if t["refId"] == ref_id)
        return self.filled(target["expr"], **chosen)


def shown_labels(panel, target):
    """Labels that legends and columns of the panel show."""
    if panel["type"] == "table":
        organize = next(t for t in panel["transformations"] if t["id"] == "organize")["options"]
        return {name for name in organize["indexByName"] if name not in organize["renameByName"]}
    return set(re.findall(r"{{\s*(\w+)\s*}}", target.get("legendFormat", "")))


def _problem(board, panel, target, query, never):
    expression = board.filled(target["expr"])
    result = [(labels, value) for labels, value in query(expression) if not math.isnan(value)]
    what = f"{board.json['title']}: {panel['title']} {target['refId']}: "
    if not result:
        return None if MAY_BE_EMPTY in panel.get("description", "") else what + "no data: " + expression
    shown = shown_labels(panel, target)
    missing = shown - never - set().union(*(labels for labels, _ in result))
    if "instance" in shown:  # series of an agent have a node only where the scrape sets it
        missing.discard("node")
    return f"{what}no label {sorted(missing)}: {expression}" if missing else None


def wait_for_data(board, query, *, never=(), seconds=60):
    """Until each query of each panel has a number, with the labels that the panel shows, and each variable
    has values. `query`: expression -> [(labels, value)]; `never`: labels that are not there, by the
    nature of the place. Returns how many queries there are."""
    never = set(never)
    open_queries = board.queries()
    problems = []

    def all_there():
        problems[:] = []
        for item in list(open_queries):
            problem = _problem(board, *item, query, never)
            if problem:
                problems.append(problem)
            else:
                open_queries.remove(item)
        for name, (selector, label) in board.label_values().items():
            values = query(f"group by ({label}) ({board.filled(selector)})")
            if label not in never and not any(labels.get(label) for labels, _ in values):
                problems.append(f"{board.json['title']}: variable {name} has no values: {selector}")
        return not problems

    wait_until(all_there, lambda: "\n".join(problems), seconds, interval=1)
    return len(board.queries())


def layout_problems(board):
    """What Grafana would refuse or draw wrongly."""
    problems, taken = [], {}
    for panel in board.panels():
        place = panel["gridPos"]
        if place["x"] < 0 or place["w"] < 1 or place["h"] < 1 or place["x"] + place["w"] > 24:
            problems.append(f"{panel['title']}: outside of the grid, {place}")
        for x in range(place["x"], place["x"] + place["w"]):
            for y in range(place["y"], place["y"] + place["h"]):
                other = taken.setdefault((x, y), panel["title"])
                if other != panel["title"]:
                    problems.append(f"{panel['title']}: lies on {other}")
        ids = [target["refId"] for target in panel.get("targets", [])]
        if len(ids) != len(set(ids)):
            problems.append(f"{panel['title']}: refId twice")
    ids = [panel["id"] for panel in board.panels()]
    if len(ids) != len(set(ids)):
        problems.append("an id twice")
    titles = [panel["title"] for panel in board.panels()]
    if len(titles) != len(set(titles)):
        problems.append("a title twice")
    return sorted(set(problems))
