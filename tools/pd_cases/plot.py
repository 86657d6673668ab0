"""Draws P's KV usage over time in each case, fixed timeout beside lease, as an SVG.

    plot.py SAMPLES.json PLOT.svg

One record gives the same bytes each time. Needs matplotlib, and nothing of vLLM.
"""

import json
import sys

TITLES = {"a": "A: decoder killed under load", "b": "B: decoder overloaded, no crash"}
COLOURS = {"timeout": "#c0392b", "lease": "#1f6fb2"}


def curve(record):
    """(label, times in seconds, usage in percent) of a record."""
    seconds = record["timeout"] if record["lease"] is None else record["lease"]
    name = "fixed timeout" if record["lease"] is None else "lease"
    return f"{name}, {seconds:g} s", [sample["t"] for sample in record["samples"]], [100 * sample["usage"] for sample in record["samples"]]


def panels(records):
    """(title, records) of each case, in order."""
    return [(title, [record for record in records if record["case"] == case]) for case, title in TITLES.items() if any(r["case"] == case for r in records)]


def draw(records, path):
    """Writes the plot of all records."""
    import matplotlib

    matplotlib.use("svg")
    from matplotlib import pyplot

    matplotlib.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "tenure", "font.family": "sans-serif", "font.size": 9})
    drawn = panels(records)
    figure, axes = pyplot.subplots(1, len(drawn), figsize=(5.2 * len(drawn), 3.2), squeeze=False, layout="constrained")
    for axis, (title, runs) in zip(axes[0], drawn):
        for record in runs:
            label, times, usage = curve(record)
            axis.plot(times, usage, color=COLOURS[record["hold"]], linewidth=1.4, label=label)
            if record["killed"] is not None:
                axis.axvline(record["killed"], color=COLOURS[record["hold"]], linewidth=0.8, linestyle=":", label=f"decoder killed ({record['hold']})")
        axis.set(title=title, xlabel="seconds since the load began", ylim=(0, 140), yticks=range(0, 101, 20), xlim=(0, None))
        axis.grid(color="#dddddd", linewidth=0.6)
        axis.legend(loc="upper right", ncols=2, framealpha=0.9)
    axes[0][0].set_ylabel("P's KV in use, %")
    figure.savefig(path, metadata={"Date": None})


def main():
    samples, path = sys.argv[1:]
    with open(samples) as file:
        draw(json.load(file), path)


if __name__ == "__main__":
    main()
