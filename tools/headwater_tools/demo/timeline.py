"""The timeline of a demo: what was down and when, and the backlog that each left, and that drained."""

from __future__ import annotations

from pathlib import Path

from .observer import Watch

PARTS = ("chest", "wrist", "hip", "broker", "gateway", "sink")
DOWN = "#b3261e"
UP = "#d5e3f0"
BOARDS = "#1a5fb4"
GATEWAY = "#26703a"


def draw(watch: Watch, path: Path, title: str) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    seen = watch.seen
    end = seen[-1].at_s
    figure, (top, bottom) = pyplot.subplots(
        2, 1, figsize=(11, 6.4), sharex=True, height_ratios=(3, 2), layout="constrained"
    )
    try:
        times = [s.at_s for s in seen]
        on_boards = [max(0, s.accepted - s.durable) for s in seen]
        everywhere = [max(0, s.accepted - s.landed) for s in seen]
        top.fill_between(times, on_boards, everywhere, step="post", color=GATEWAY, alpha=0.35, linewidth=0)
        top.step(times, everywhere, where="post", color=GATEWAY, label="not in the lake yet")
        top.fill_between(times, on_boards, step="post", color=BOARDS, alpha=0.35, linewidth=0)
        top.step(times, on_boards, where="post", color=BOARDS, label="only on the boards")
        top.set_ylabel("samples waiting")
        top.set_ylim(bottom=0)
        top.legend(loc="upper right", frameon=False)
        top.set_title(title, loc="left")
        for spell in watch.spells:
            top.axvspan(spell.from_s, spell.to_s or end, color=DOWN, alpha=0.10, linewidth=0)
        for row, part in enumerate(reversed(PARTS)):
            bottom.barh(row, end, height=0.5, color=UP, linewidth=0)
            for spell in watch.spells:
                if spell.part == part:
                    to = spell.to_s or end
                    bottom.barh(
                        row, to - spell.from_s, left=spell.from_s, height=0.5, color=DOWN, linewidth=0
                    )
                    right = to > 0.72 * end  # no space after it
                    bottom.annotate(
                        spell.what,
                        (spell.from_s if right else to, row),
                        xytext=(-4 if right else 4, 0),
                        textcoords="offset points",
                        ha="right" if right else "left",
                        va="center",
                        fontsize=8,
                    )
        bottom.set_yticks(range(len(PARTS)), list(reversed(PARTS)))
        bottom.tick_params(axis="y", length=0)
        bottom.set_xlim(0, end)
        bottom.set_xlabel("seconds")
        for axes in (top, bottom):
            for side in ("top", "right", "left") if axes is bottom else ("top", "right"):
                axes.spines[side].set_visible(False)
        figure.savefig(path, dpi=110)
    finally:
        pyplot.close(figure)
