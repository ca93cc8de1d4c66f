"""Chooses a model's runner by device."""

from __future__ import annotations

import errno
from pathlib import Path

from ramet.runtime.api.batch import ModelRunner
from ramet.runtime.api.errors import ModelLoadError
from ramet.runtime.model.files.model_file import ModelFile
from ramet.runtime.model.storage import Storage, choose_storage

_GPU_DEVICES = ("/dev/nvidiactl", "/dev/kfd", "/dev/dxg")


def load_runner(
    model: ModelFile,
    *,
    device: str = "auto",
    num_pages: int | None = None,
    page_size: int = 16,
    kv_bytes: int,
    num_threads: int | None = None,
    cpu_path: str = "auto",
    storage: Storage | None = None,
) -> ModelRunner:
    """A runner for an opened model: the compiled one on a CPU, the torch one on a GPU.

    Args:
        device: ``cpu``; ``cuda`` or ``cuda:1``; ``auto``: a GPU if there is one.
        num_pages: pages of keys and values; None: as many as fit ``kv_bytes``.
        num_threads: threads of a step on a CPU; None: one a usable core.
        cpu_path: the integer dot product of a CPU (``DotPath``); ``auto``: the fastest one.
        storage: of weights, keys and values; None: the default one of the device.

    ModelLoadError: a device that isn't there, or that Ramet doesn't know; kernels that the CPU
    lacks; too little memory.
    """
    device = chosen_device(device)
    storage = storage or choose_storage(model, on_gpu=device != "cpu")
    # Each runner's libraries take a while to import, so only the one that runs is.
    if device == "cpu":
        from ramet.kernels.cpu_support.features import chosen_dot_path
        from ramet.runtime.model.cpu.runner import CpuRunner

        try:
            dot_path = chosen_dot_path(cpu_path)
        except ValueError as error:
            raise ModelLoadError(str(error), param="cpu_path") from None
        try:
            return CpuRunner(
                model,
                num_pages=num_pages,
                page_size=page_size,
                kv_bytes=kv_bytes,
                num_threads=num_threads,
                dot_path=dot_path,
                quantise=storage.quantise,
                kv_dtype=storage.kv_dtype,
            )
        except OSError as error:
            if error.errno != errno.ENOMEM:
                raise
            raise _out_of_memory(model, kv_bytes) from None
        except MemoryError:
            raise _out_of_memory(model, kv_bytes) from None
    kind, _, index = device.partition(":")
    if kind != "cuda" or (index and not index.isdecimal()):
        raise ModelLoadError(
            f"the device {device!r} is not known: auto, cpu, cuda or cuda:<number>", param="device"
        )
    if cpu_path != "auto":
        raise ModelLoadError(
            f"cpu_path is {cpu_path!r}, and the device is no CPU", param="cpu_path"
        )
    from ramet.runtime.model.torch.runner import TorchOptions, TorchRunner

    options = TorchOptions(
        device=device,
        num_pages=num_pages,
        page_size=page_size,
        kv_bytes=kv_bytes,
        quantise=storage.quantise,
    )
    return TorchRunner.load(model, options)


def chosen_device(device: str) -> str:
    """Resolves the device ``auto``; returns any other unchanged."""
    if device != "auto":
        return device
    return "cuda" if _has_gpu() else "cpu"


def describe_default() -> str:
    """Describes the default device and its kernels."""
    if not _has_gpu():
        return "the CPU, by compiled kernels"
    import torch

    from ramet.kernels.triton_support.dispatch import architecture

    device = torch.device("cuda", torch.cuda.current_device())
    return f"{torch.cuda.get_device_name(device)} ({architecture(device)}), by Triton kernels"


def _out_of_memory(model: ModelFile, kv_bytes: int) -> ModelLoadError:
    available = _available_bytes()
    return ModelLoadError(
        f"there is not enough memory for the weights, {_size_mib(model.path)} MiB as stored, and a"
        f" cache of {kv_bytes >> 20} MiB"
        + (f": {available >> 20} MiB are available" if available is not None else "")
        + "; ask for a smaller cache",
        param="cache_bytes",
    )


def _size_mib(path: Path) -> int:
    files = [path] if path.is_file() else [each for each in path.glob("*") if each.is_file()]
    return sum(each.stat().st_size for each in files) >> 20


def _available_bytes() -> int | None:
    """The system's available memory, where it is reported."""
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
    except OSError:
        return None
    sizes = [int(line.split()[1]) for line in lines if line.startswith("MemAvailable:")]
    return sizes[0] << 10 if sizes else None


def _has_gpu() -> bool:
    """Whether torch can use a GPU; torch is not imported where the system has none."""
    if not any(Path(path).exists() for path in _GPU_DEVICES):
        return False
    import torch

    return torch.cuda.is_available()
