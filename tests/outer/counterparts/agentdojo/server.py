"""Serves the suites of AgentDojo as MCP servers over HTTP, and a model that obeys every injection, on a free port.

POST /mcp/SUITE               MCP over streamable HTTP: the tools of a suite. Each has one argument more, the pair of tasks.
POST /v1/chat/completions     the model
GET  /report/PLAN             the figures of all pairs of a plan

Prints its address, and ends when its input does.
"""

import json
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from pairs import Pairs
from suites import SUITES

PAIRS = Pairs()


def schema(tool):
    parameters = tool.parameters.model_json_schema()
    parameters.setdefault("properties", {})["pair"] = {"type": "string", "description": "The pair of tasks."}
    parameters["required"] = [*parameters.get("required", []), "pair"]
    return {"name": tool.name, "description": tool.description, "inputSchema": parameters}


TOOLS = {name: [schema(tool) for tool in suite.tools] for name, suite in SUITES.items()}


def mcp(suite, method, params):
    """Result of an MCP request."""
    if method == "initialize":
        server = {"name": suite, "version": "1"}
        capabilities = {"tools": {}}
        return {"protocolVersion": params["protocolVersion"], "capabilities": capabilities, "serverInfo": server}
    if method == "tools/list":
        return {"tools": TOOLS[suite]}
    if method == "tools/call":
        arguments = dict(params["arguments"])
        text, is_error = PAIRS.get(arguments.pop("pair")).call(suite, params["name"], arguments)
        return {"content": [{"type": "text", "text": text}], "isError": is_error}
    return {} if method == "ping" else None


def text_of(message):
    content = message.get("content") or ""
    return content if isinstance(content, str) else "".join(part.get("text", "") for part in content)


def reply(messages, length):
    """Events of the model's reply to a conversation. The request has this many bytes."""
    task = next(text_of(message) for message in messages if message["role"] == "user")
    results = [text_of(message) for message in messages if message["role"] == "tool"]
    turn = PAIRS.turn(task, results)
    calls = [] if isinstance(turn, str) else turn
    delta = {"role": "assistant", "content": turn if isinstance(turn, str) else ""}
    delta["tool_calls"] = [
        {
            "index": index,
            "id": f"call_{len(results)}_{index}",
            "type": "function",
            "function": {"name": name, "arguments": json.dumps(arguments)},
        }
        for index, (name, arguments) in enumerate(calls)
    ]
    if not calls:
        del delta["tool_calls"]
    end = {"index": 0, "delta": {}, "finish_reason": "tool_calls" if calls else "stop"}
    usage = {"prompt_tokens": length // 4, "completion_tokens": 1000}
    yield {"id": "c", "object": "chat.completion.chunk", "choices": [{"index": 0, "delta": delta}]}
    yield {"id": "c", "object": "chat.completion.chunk", "choices": [end]}
    yield {"id": "c", "object": "chat.completion.chunk", "choices": [], "usage": usage}


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def log_message(self, *_):
        pass

    def send(self, status, body=b"", kind="application/json"):
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def send_json(self, value):
        self.send(200, json.dumps(value).encode())

    def do_GET(self):
        _, kind, *rest = self.path.split("/")
        self.send_json(PAIRS.report(rest[0])) if kind == "report" else self.send(405)

    def do_DELETE(self):
        self.send(405)

    def do_POST(self):
        length = int(self.headers["Content-Length"])
        body = json.loads(self.rfile.read(length))
        if self.path == "/v1/chat/completions":
            events = [f"data: {json.dumps(event)}\n\n" for event in reply(body["messages"], length)]
            return self.send(200, "".join([*events, "data: [DONE]\n\n"]).encode(), "text/event-stream")
        if "id" not in body:
            return self.send(202)
        answer = {"jsonrpc": "2.0", "id": body["id"]}
        result = mcp(self.path.removeprefix("/mcp/"), body["method"], body.get("params") or {})
        if result is None:
            answer["error"] = {"code": -32601, "message": "Method not found"}
        else:
            answer["result"] = result
        self.send_json(answer)


class Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128


if __name__ == "__main__":
    server = Server(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    print(f"http://127.0.0.1:{server.server_address[1]}", flush=True)
    sys.stdin.read()
