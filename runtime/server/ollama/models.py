"""The served model as Ollama describes models."""

from __future__ import annotations

import datetime
import hashlib
from typing import Any

from ramet.runtime.api.errors import ChatTemplateError
from ramet.runtime.server.calls.context import ServerContext


def model_list(context: ServerContext, started: datetime.datetime) -> dict[str, Any]:
    """``/api/tags`` and ``/api/ps``: the model under each of its names."""
    size = context.memory.plan.weights
    return {
        "models": [
            {
                "name": f"{name}:latest",
                "model": f"{name}:latest",
                "modified_at": started.isoformat(),
                "size": size,
                "size_vram": 0,
                "digest": hashlib.sha256(name.encode()).hexdigest(),
                "details": _details(),
            }
            for name in context.model_names
        ]
    }


def model_facts(context: ServerContext) -> dict[str, Any]:
    """``/api/show``."""
    engine = context.engine
    capabilities = ["completion"]
    template = ""
    try:
        template = context.planner.template.source
        capabilities.append("tools")
    except ChatTemplateError:
        pass
    if context.planner.reasons:
        capabilities.append("thinking")
    defaults = engine.sampling_defaults
    return {
        "modelfile": "",
        "template": template,
        "parameters": "\n".join(f"{name} {value}" for name, value in defaults.items()),
        "details": _details(),
        "model_info": {
            "general.basename": engine.model_name,
            "general.architecture": "ramet",
            "ramet.context_length": engine.max_context_len,
        },
        "capabilities": capabilities,
    }


def _details() -> dict[str, Any]:
    return {
        "parent_model": "",
        "format": "gguf",
        "family": "",
        "families": [],
        "parameter_size": "",
        "quantization_level": "",
    }
