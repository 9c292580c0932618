# SPDX-License-Identifier: Apache-2.0
"""The page of results in Markdown, with plots where matplotlib is installed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from chain_contestants import AUTO, STEPS
from races import in_words
from scheduling import TWICE_AS_DEEP
from sections import FIELD_BY_FIELD, LIBRARY, PYTORCH, SECTIONS
from step_contestants import GRAPH, WORKERS

Row = dict[str, Any]

# --- tables ------------------------------------------------------------------------------------------------


def write_page(report: dict[str, Any], others: dict[str, dict[str, Any]], folder: Path, name: str) -> Path:
    """Write the page and its plots.

    Args:
        report: What `bench` has measured.
        others: Reports of the other benchmarks, by heading.
        folder: Where to.
        name: Of the page, without suffix.
    """
    lines = [
        f"# Benchmarks: {report['processor']}, {report['cores']} cores, no GPU",
        "",
        f"`make bench` writes this page. Python {report['python']}, DALI {report['dali']}, "
        f"NumPy {report['numpy']}, PyTorch {report['torch']}. The contestants of a race run in turns, in an order "
        "that changes, in one run: ratios are of turns that follow each other. All figures are medians over the "
        "turns, ranges in brackets. *Processor time* is that of all processes together; *busy cores* is that time "
        "per second. Before they are measured, contestants are checked to deliver the same arrays.",
        "",
        "Other programs that run at the same time make rates smaller, and favour contestants with more processes; "
        "processor time hardly depends on them. Turns are repeated while there are some, and the quietest ones "
        "count. The load averages, and *cores of others* during these turns, tell what is left of them.",
        "",
        *_target_table(report),
    ]
    for section in SECTIONS:
        found = report["sections"].get(section.name)
        if found is None:
            continue
        before, after = found["load_average_before_and_after"]
        lines += ["", f"## {section.title}", "", section.text]
        lines += [f"Load average before and after: {before:.1f}, {after:.1f}.", ""]
        plot = _plot(section.name, found, folder / f"{name}_{section.name}.png")
        if plot is not None:
            lines += [f"![{section.title}]({plot.name})", ""]
        lines += _section_lines(found)
    for title, other in others.items():
        lines += ["", f"## {title}", "", *_other_lines(other)]
    path = folder / f"{name}.md"
    path.write_text("\n".join(lines).rstrip() + "\n")
    return path


def _target_table(report: dict[str, Any]) -> list[str]:
    lines = ["## Bounds", "", "| bound | is | |", "|---|--:|---|"]
    for section in report["sections"].values():
        for each in section["targets"]:
            verdict = "met" if each["is_met"] else f"**missed**{_reason(section, each['target'], report['cores'])}"
            lines.append(f"| {each['target']} | {each['value']:.2f} | {verdict} |")
    return lines


def _reason(section: dict[str, Any], target: str, num_cores: int) -> str:
    """Why a bound is missed, as far as the figures tell."""
    for row in section.get("stragglers", []):
        if target.startswith(f"stragglers, {row['workers']} workers: share"):
            deeper, torch = (row["share_of_ideal"][name]["median"] for name in (TWICE_AS_DEEP, "PyTorch"))
            return (
                ": workers that are ahead wait for the batch that is due; "
                f"{deeper:.2f} with two batches per worker, {torch:.2f} in PyTorch, which has two by default"
            )
    for row in section["results"]:
        for ratio in row["ratios"]:
            if target.startswith(f"{row['race']}: {ratio['of']} to {ratio['to']},"):
                most = num_cores / row["busy_cores"][ratio["to"]]["median"]
                return (
                    f": {_difference(row, ratio['of'], ratio['to'])}; with all {num_cores} cores busy, the other "
                    f"one would have {most:.2f} times its rate"
                )
    return ""


def _difference(row: Row, one: str, other: str) -> str:
    """What makes a ratio: more or less processor time for each, and more or fewer busy cores."""
    ours, theirs = (row["processor_ms_each"][name]["median"] for name in (one, other))
    busy, their_busy = (row["busy_cores"][name]["median"] for name in (one, other))
    return f"{ours:.2f} against {theirs:.2f} ms of processor time, {busy:.2f} against {their_busy:.2f} busy cores"


def _section_lines(section: dict[str, Any]) -> list[str]:
    lines: list[str] = []
    if section["results"]:
        lines += _race_table(section["results"])
        lines += _defeats(section["results"])
    for name, reason in section.get("not_here", {}).items():
        lines += ["", f"{name}: skipped, it cannot be used here ({reason})."]
    if "packing" in section:
        lines += ["", "| packing in a worker, batches of 8 | us per sample |", "|---|--:|"]
        for row in section["packing"]:
            what = f"{row['leaves']} fields, {row['touched']} touched"
            lines.append(f"| {what} | {in_words(row['us_per_sample'], '.1f')} |")
    if "stragglers" in section:
        lines += ["| stragglers | contestant | share of ideal throughput | in order |", "|---|---|--:|---|"]
        for row in section["stragglers"]:
            for name, share in row["share_of_ideal"].items():
                order = "yes" if row["is_in_order"] else "no"
                lines.append(f"| {row['workers']} workers | {name} | {in_words(share, '.2f')} | {order} |")
        first, build = section["first_batch"], section["build"]
        lines += [
            "",
            "| once | seconds |",
            "|---|--:|",
            f"| first batch, without the start of interpreters | {in_words(first['seconds'], '.2f')} |",
            "| start of interpreters, before that | "
            f"{in_words(first['seconds_until_interpreters_have_started'], '.2f')} |",
            f"| define and build twenty steps over six cameras | {in_words(build, '.2f')} |",
        ]
    return lines


def _other_lines(other: dict[str, Any]) -> list[str]:
    """Of another benchmark: its own bounds, and a table."""
    loads = ", ".join(f"{each:.1f}" for each in other.get("load_average_before_and_after", ()))
    lines = [f"Load average before and after: {loads or 'not noted'}.", ""]
    lines += ["| bound | is | |", "|---|--:|---|"]
    for each in other["targets"]:
        verdict = "met" if each["is_met"] else "**missed**"
        what = each["target"] if "value" in each else f"{each['target']}, at most {each['limit']:g} {each['unit']}"
        lines.append(f"| {what} | {each.get('value', each.get('worst')):.2f} | {verdict} |")
    if "frames" in other:
        lines += _frame_lines(other)
    if "us" not in other["results"][0]:
        return [*lines, "", *_section_lines(other)]
    metrics = [*other["results"][0]["us"]]
    heads = "".join(f" {metric}, us |" for metric in metrics)
    lines += ["", f"| order | of |{heads} peak memory, MiB |", "|---|--:|" + "--:|" * (len(metrics) + 1)]
    for row in other["results"]:
        size = next(f"{row[unit]:.0e} {unit}" for unit in ("samples", "sequences") if unit in row)
        times = "".join(f" {row['us'][metric]['median']:.1f} |" for metric in metrics)
        lines.append(f"| {row['name']} | {size} |{times} {row['peak_memory_bytes'] / 2**20:.2f} |")
    return lines


def _frame_lines(other: dict[str, Any]) -> list[str]:
    """Of frames of videos: how many per second of processor time, and what it takes to cut clips out."""
    lines = ["", "| frames | contestant | per core-second | ratio to PyAV |", "|---|---|--:|--:|"]
    for row in other["frames"]:
        for number, (name, rate) in enumerate(row["per_core_second"].items()):
            ratio = row["ratios_to_pyav"].get(name)
            what = "" if number else f"{row['codec']}, {row['kind']}"
            lines.append(
                f"| {what} | {name} | {in_words(rate, '.1f')} | {in_words(ratio, '.2f') if ratio else ''} |"
            )
    lines += [
        "",
        "| clips cut out | Mbit/s | ms each | kB each | bytes of RGB to these |",
        "|---|--:|--:|--:|--:|",
    ]
    for row in other["cutting"]:
        rate, times, sizes = (
            other["mbit_per_s"][row["codec"]],
            *(in_words(row[key], ".2f") for key in ("ms", "kilobytes")),
        )
        lines.append(f"| {row['codec']} | {rate} | {times} | {sizes} | {row['rgb_to_bytes']:.1f} |")
    return lines


def _race_table(rows: list[Row]) -> list[str]:
    lines = [
        "| race | contestant | per second | processor ms each | busy cores | ratio to it | cores of others |",
        "|---|---|--:|--:|--:|--:|--:|",
    ]
    for row in rows:
        ratios = {ratio["to"]: ratio for ratio in reversed(row["ratios"])}
        for number, (name, rate) in enumerate(row["per_second"].items()):
            busy = row.get("busy_cores", {}).get(name)
            columns = [
                "" if number else f"{row['race']} ({row['unit']})",
                name,
                in_words(rate, ".0f" if rate["median"] >= 100 else ".1f"),
                in_words(row["processor_ms_each"][name], ".2f"),
                "" if busy is None else f"{busy['median']:.2f}",
                in_words(ratios[name], ".2f") if name in ratios else "",
                "" if number or "others_cores" not in row else in_words(row["others_cores"], ".2f"),
            ]
            lines.append(f"| {' | '.join(columns)} |")
    return lines


def _whose(contestant: str) -> str:
    return "" if contestant in (LIBRARY, STEPS) else f" ({contestant})"


def _defeats(rows: list[Row]) -> list[str]:
    """Where the library is slower, and what the measurement says about why."""
    found = [
        f"- {row['race']}{_whose(ratio['of'])}: {ratio['median']:.2f} times the rate of {ratio['to']}; "
        f"{_difference(row, ratio['of'], ratio['to'])}."
        for row in rows
        for ratio in row["ratios"]
        if ratio["median"] < 0.97 and "busy_cores" in row and ratio["of"] in (LIBRARY, STEPS, GRAPH, WORKERS, AUTO)
    ]
    return ["", "Where this library is slower:", "", *found] if found else []


# --- plots -------------------------------------------------------------------------------------------------


def _plot(name: str, section: dict[str, Any], path: Path) -> Path | None:
    try:
        import matplotlib
    except ImportError:
        return None
    matplotlib.use("Agg")
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10, 4), layout="constrained")
    draw = {"transport": _draw_transport, "folding": _draw_folding, "times": _draw_stragglers}.get(
        name, _draw_rates
    )
    draw(figure, section)
    figure.savefig(path, dpi=90)
    return path


def _groups(rows: list[Row], *keys: str) -> Iterator[tuple[tuple[Any, ...], list[Row]]]:
    groups: dict[tuple[Any, ...], list[Row]] = {}
    for row in rows:
        groups.setdefault(tuple(row["at"][key] for key in keys), []).append(row)
    yield from groups.items()


def _draw_transport(figure: Any, section: dict[str, Any]) -> None:
    groups = [*_groups(section["results"], "touched")]
    for axes, ((touched,), rows) in zip(figure.subplots(1, len(groups), squeeze=False)[0], groups, strict=True):
        for name in (LIBRARY, FIELD_BY_FIELD, PYTORCH):
            sizes = [row["at"]["fields"] for row in rows]
            times = [1e3 * row["at"]["batch_size"] / row["per_second"][name]["median"] for row in rows]
            axes.plot(sizes, times, marker="o", label=name)
        axes.set(title=f"{touched or 'none'} touched", xlabel="small fields", ylabel="ms per batch of 8", ylim=0)
        axes.legend(fontsize="small")


def _draw_folding(figure: Any, section: dict[str, Any]) -> None:
    figure.set_size_inches(12, 6)
    works = [*_groups(section["results"], "work")]
    columns = len([*_groups(works[0][1], "batch_size")])
    grid = figure.subplots(len(works), columns, squeeze=False, sharex=True)
    for line, ((work,), of_work) in zip(grid, works, strict=True):
        for axes, ((batch_size,), rows) in zip(line, _groups(of_work, "batch_size"), strict=True):
            for name in rows[0]["per_second"]:
                cameras = [row["at"]["cameras"] for row in rows]
                rates = [row["at"]["cameras"] * row["per_second"][name]["median"] for row in rows]
                axes.plot(cameras, rates, marker="o", markersize=3, label=name)
            axes.set(title=f"{work}\nbatches of {batch_size}", ylim=0)
            axes.title.set_fontsize("small")
        line[0].set_ylabel("images per second")
    for axes in grid[-1]:
        axes.set_xlabel("cameras")
    figure.legend(*grid[0][0].get_legend_handles_labels(), loc="outside lower center", ncols=4, fontsize="small")


def _draw_rates(figure: Any, section: dict[str, Any]) -> None:
    rows = section["results"]
    axes = figure.subplots()
    names = [*dict.fromkeys(name for row in rows for name in row["per_second"])]
    colors = {name: f"C{number}" for number, name in enumerate(names)}
    for group, row in enumerate(rows):  # not all contestants are in all races
        width = 0.85 / len(row["per_second"])
        for number, (name, rate) in enumerate(row["per_second"].items()):
            errors = [[rate["median"] - rate["min"]], [rate["max"] - rate["median"]]]
            place = group + width * (number + 0.5)
            axes.bar(place, rate["median"], 0.94 * width, yerr=errors, color=colors[name])
    for name in names:
        axes.bar(0, 0, 0, color=colors[name], label=name)
    axes.set_xticks([group + 0.42 for group in range(len(rows))])
    axes.set_xticklabels([f"batches of {row['at']['batch_size']}" for row in rows])
    axes.set_ylabel("samples per second")
    figure.legend(loc="outside lower center", ncols=4, fontsize="small")  # above the axes it would cover bars


def _draw_stragglers(figure: Any, section: dict[str, Any]) -> None:
    axes = figure.subplots()
    rows = section["stragglers"]
    for name in rows[0]["share_of_ideal"]:
        shares = [row["share_of_ideal"][name]["median"] for row in rows]
        axes.plot([row["workers"] for row in rows], shares, marker="o", label=name)
    axes.set(xlabel="workers", ylabel="share of ideal throughput", ylim=(0, 1.05))
    axes.axhline(1.0, color="grey", linewidth=0.5)
    axes.legend()
