"""A server that speaks as much of the Hugging Face hub as an upload needs: `python hub_server.py FOLDER`.

What came is in FOLDER: requests.jsonl, a line a request, and files by their path. `state.json` there says
what it answers: {"token", "user", "private", "fail": {"what": status}}. Its address is the first line of
its output.
"""

from __future__ import annotations

import base64
import json
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

FOLDER = Path(sys.argv[1])


def state() -> dict[str, Any]:
    found: dict[str, Any] = json.loads((FOLDER / "state.json").read_text())
    return found


class Hub(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 -- the name is the library's
        pass

    def do_GET(self) -> None:
        self.answer("")

    def do_HEAD(self) -> None:
        self.answer("")

    def do_POST(self) -> None:
        if self.headers.get("Transfer-Encoding") == "chunked":
            body = b""
            while size := int(self.rfile.readline(), 16):
                body += self.rfile.read(size)
                self.rfile.readline()
            self.rfile.readline()
        else:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        self.answer(body.decode())

    def answer(self, body: str) -> None:
        path, now = self.path.partition("?")[0], state()
        with (FOLDER / "requests.jsonl").open("a") as out:
            out.write(json.dumps({"method": self.command, "path": path, "body": body}) + "\n")
        if self.headers.get("Authorization") != f"Bearer {now['token']}":
            return self.send(401, {"error": "Invalid credentials"})
        for what, status in now.get("fail", {}).items():
            if what in path:
                return self.send(status, {"error": "refused"})
        if path == "/api/whoami-v2":
            return self.send(200, {"name": now["user"], "type": "user"})
        if path == "/api/repos/create":
            if "private" in now:
                return self.send(409, {"error": "exists", "url": self.dataset})
            (FOLDER / "state.json").write_text(
                json.dumps(now | {"private": json.loads(body)["visibility"] == "private"})
            )
            return self.send(200, {"url": self.dataset})
        if path.endswith("/preupload/main"):
            files = [
                each | {"uploadMode": "regular", "shouldIgnore": False} for each in json.loads(body)["files"]
            ]
            return self.send(200, {"files": files})
        if path.endswith("/commit/main"):
            for line in map(json.loads, body.splitlines()):
                if line["key"] == "file":
                    place = FOLDER / line["value"]["path"]
                    place.parent.mkdir(parents=True, exist_ok=True)
                    place.write_bytes(base64.b64decode(line["value"]["content"]))
            return self.send(
                200,
                {"commitOid": "c" * 40, "commitUrl": f"{self.dataset}/commit/{'c' * 40}", "success": True},
            )
        if "private" not in now:
            return self.send(404, {"error": "Repository not found"})
        return self.send(
            200, {"id": f"{now['user']}/hermes-traces", "private": now.get("private"), "sha": "a" * 40}
        )

    @property
    def dataset(self) -> str:
        return f"http://{self.headers['Host']}/datasets/{state()['user']}/hermes-traces"

    def send(self, status: int, answer: dict[str, Any]) -> None:
        body = json.dumps(answer).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)


if __name__ == "__main__":
    server = ThreadingHTTPServer(("127.0.0.1", 0), Hub)
    print(f"http://127.0.0.1:{server.server_port}", flush=True)
    server.serve_forever()
