# SPDX-License-Identifier: Apache-2.0
"""A real Prometheus on the host, which scrapes addresses of pods."""
import json
import os
import shutil
import subprocess
import urllib.parse
import urllib.request

import yaml
from e2e.harness.agent import free_port
from e2e.harness.waiting import wait_until


class Prometheus:
    """`rules`: paths of rule files. Use as a context; the server ends with it."""

    def __init__(self, directory, *targets, rules=(), interval="1s"):
        self._directory = os.path.join(str(directory), "prometheus")
        os.makedirs(self._directory)
        self._url = f"http://127.0.0.1:{free_port()}"
        self._process = None
        # Labels of the series win, as the monitors of the chart have it.
        settings = {"global": {"scrape_interval": interval, "evaluation_interval": interval},
                    "rule_files": [str(path) for path in rules],
                    "scrape_configs": [{"job_name": "ingero", "honor_labels": True,
                                        "static_configs": [{"targets": list(targets)}]}]}
        with open(self._file("prometheus.yaml"), "w", encoding="utf-8") as file:
            yaml.safe_dump(settings, file)

    def _file(self, name):
        return os.path.join(self._directory, name)

    def __enter__(self):
        program = shutil.which("prometheus")
        assert program, "no prometheus; hint: hack/setup"
        with open(self._file("log"), "wb") as log:
            self._process = subprocess.Popen(
                [program, f"--config.file={self._file('prometheus.yaml')}",
                 f"--storage.tsdb.path={self._file('data')}",
                 f"--web.listen-address={self._url.removeprefix('http://')}"],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        wait_until(self._is_ready, f"Prometheus; its log: {self._file('log')}")
        return self

    def __exit__(self, *problem):
        self._process.terminate()
        self._process.wait(20)

    def _get(self, path):
        with urllib.request.urlopen(self._url + path, timeout=20) as answer:
            return json.load(answer)

    def _is_ready(self):
        try:
            with urllib.request.urlopen(f"{self._url}/-/ready", timeout=5) as answer:
                return answer.status == 200
        except OSError:
            return False

    def query(self, expression):
        """[(labels, value)] now."""
        answer = self._get("/api/v1/query?" + urllib.parse.urlencode({"query": expression}))
        assert answer["status"] == "success", answer
        result = answer["data"]["result"]
        if answer["data"]["resultType"] == "scalar":
            return [({}, float(result[1]))]
        return [(series["metric"], float(series["value"][1])) for series in result]

    def wait_for(self, expression, condition, seconds=30):
        """The result of the expression, once it is as wanted; scrapes take their time."""
        result = []

        def holds():
            result[:] = self.query(expression)
            return condition(result)

        wait_until(holds, lambda: f"{expression}; last: {result}", seconds, interval=0.5)
        return result
