"""What the figures were taken on."""

import os
import pathlib
import platform
import re

# Of the many flags of a processor, those that decide which kernels run.
_KERNEL_FLAGS = ("sse4_2", "avx", "f16c", "fma", "avx2", "avx_vnni", "avx512f", "avx512bw", "avx512vl", "avx512_vnni",
                 "avx512_bf16", "amx_int8", "amx_bf16", "asimd", "asimddp", "i8mm", "bf16", "sve", "sve2")


def describe():
    text = pathlib.Path("/proc/cpuinfo").read_text()
    flags = set(_field(text, "flags|Features").split())
    memory_kib = int(re.search(r"MemTotal:\s+(\d+)", pathlib.Path("/proc/meminfo").read_text()).group(1))
    return {
        "cpu": _field(text, "model name") or platform.machine(),
        "cpu_family_model": f"{_field(text, 'cpu family')}/{_field(text, 'model')}",
        "cores": len(os.sched_getaffinity(0)),
        "isa": [flag for flag in _KERNEL_FLAGS if flag in flags],
        "memory_gib": round(memory_kib / 2**20, 1),
        "kernel": platform.release(),
        "load_average_at_start": os.getloadavg()[0],
    }


def busy_seconds():
    """CPU seconds that all processes have taken since the machine started, those of its host included."""
    ticks = [int(word) for word in pathlib.Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]]
    idle = ticks[3] + ticks[4]
    return (sum(ticks) - idle) / os.sysconf("SC_CLK_TCK")


def _field(text, name):
    found = re.search(rf"^(?:{name})\s*:\s*(.*)$", text, re.MULTILINE)
    return found.group(1).strip() if found else ""
