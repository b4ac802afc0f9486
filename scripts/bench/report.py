"""The figures as a Markdown table and as JSON."""

import shlex
import statistics

from plan import Better


def summarize(metrics, samples):
    """samples: {metric name: {server name: [values]}} -> one record for each metric."""
    records = []
    for metric in metrics:
        ours, theirs = (samples[metric.name][name] for name in ("hisparse", "llama-server"))
        ratio = statistics.median(ours) / statistics.median(theirs)
        records.append({
            "metric": metric.name, "title": metric.title, "unit": metric.unit,
            "better": metric.better.value, "hisparse": _spread(ours), "llama-server": _spread(theirs),
            "ratio": ratio, "target_ratio": metric.target, "met": metric.met(ratio),
        })
    return records


def markdown(run):
    lines = ["| figure | unit | hisparse | llama-server | ratio | target | met |", "|---|---|---|---|---|---|---|"]
    for record in run["results"]:
        sign = ">=" if record["better"] == Better.HIGHER.value else "<="
        lines.append(f"| {record['title']} | {record['unit']} | {_cell(record['hisparse'])} | "
                     f"{_cell(record['llama-server'])} | {record['ratio']:.2f} | {sign} {record['target_ratio']:g} | "
                     f"{'yes' if record['met'] else '**no**'} |")
    met = sum(record["met"] for record in run["results"])
    machine = run["machine"]
    lines += [
        "",
        f"{met} of {len(run['results'])} targets met. Medians of {run['rounds']} (lowest to highest): of turns, but for "
        "batches at 7500 tokens, which are windows of one turn. Ratio = hisparse / llama-server, of the medians. Peak "
        "memory is one sample, VmHWM after the same requests: rows of the KV cache count where a server has written to "
        "them. The start of llama-server takes in its warm-up run, as it does by default.",
        "",
        f"- Machine: {machine['cpu']} (family/model {machine['cpu_family_model']}), {machine['cores']} cores, "
        f"{' '.join(machine['isa'])}, {machine['memory_gib']} GiB; load before the run "
        f"{machine['load_average_at_start']:.1f}.",
        f"- Both: {run['model']}, {run['threads']} threads, greedy, every prompt new, prompt reuse off.",
    ]
    for name, server in run["servers"].items():
        lines.append(f"- {name}: {server['version']}; {'; '.join(server['facts'])}")
        lines.append(f"  `{shlex.join(server['command'])}` (slots and context as the figure asks)")
    lines += [f"- Note: {note}" for note in run["notes"]]
    return "\n".join(lines)


def _spread(values):
    return {"median": statistics.median(values), "min": min(values), "max": max(values), "samples": values}


def _cell(spread):
    return f"{_short(spread['median'])} ({_short(spread['min'])}–{_short(spread['max'])})"


def _short(value):
    return f"{value:.0f}" if value >= 100 else f"{value:.1f}"
