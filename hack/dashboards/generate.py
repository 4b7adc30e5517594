# SPDX-License-Identifier: Apache-2.0
"""Writes or compares the dashboards; started by hack/generate-dashboards."""
import difflib
import json
import pathlib
import sys

from grafana_foundation_sdk.cog.encoder import JSONEncoder

import data_movement
import pods

REPOSITORY = pathlib.Path(__file__).resolve().parent.parent.parent
FOLDER = REPOSITORY / "helm/ingero/dashboards"


def made():
    for name, board in (("data-movement", data_movement.board()), ("pods", pods.board())):
        yield FOLDER / f"{name}.json", json.dumps(board, cls=JSONEncoder, indent=1, sort_keys=True) + "\n"


def main():
    check, wrong = sys.argv[1:] == ["--check"], 0
    expected = dict(made())
    for path in sorted(set(FOLDER.glob("*.json")) - set(expected)):
        print(f"{path.relative_to(REPOSITORY)} is made by nothing in hack/dashboards")
        wrong = 1
    for path, text in expected.items():
        name = path.relative_to(REPOSITORY)
        before = path.read_text() if path.exists() else ""
        if before == text:
            continue
        if check:
            wrong = 1
            print(f"{name} is not what hack/generate-dashboards makes")
            difference = difflib.unified_diff(before.splitlines(), text.splitlines(), str(name), "made",
                                              lineterm="")
            print("\n".join(list(difference)[:20]))
        else:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
            print(f"hack/generate-dashboards: {name}")
    sys.exit(wrong)


main()
