# SPDX-License-Identifier: Apache-2.0
"""Who asked the API server for what, by its audit log."""
import json
import os

from .kubectl import environment

AGENT = "system:serviceaccount:ingero:ingero"
_CREDENTIAL = "authentication.kubernetes.io/credential-id"


class Audit:
    """Requests that are answered after this was made."""

    def __init__(self):
        self._path = os.path.join(os.path.dirname(environment()["KUBECONFIG"]), "log", "audit.log")
        self._offset = os.path.getsize(self._path)

    def requests(self, user=AGENT):
        """[{verb, resource, name, credential, code, decision}] of one user."""
        with open(self._path, encoding="utf-8") as file:
            file.seek(self._offset)
            events = [json.loads(line) for line in file if line.endswith("}\n")]
        return [_short(event) for event in events if event["user"].get("username") == user]

    def refused(self, user=AGENT):
        """What the user's role lacks."""
        return [request for request in self.requests(user) if request["code"] in (401, 403)]


def _short(event):
    target = event.get("objectRef", {})
    return {"verb": event["verb"], "resource": target.get("resource", event["requestURI"]),
            "name": target.get("name", ""),
            "credential": event["user"].get("extra", {}).get(_CREDENTIAL, [""])[0], "code": event.get("responseStatus", {}).get("code"),
            "decision": event.get("annotations", {}).get("authorization.k8s.io/decision", "")}
