"""
Audit in a notebook
===================

The whole audit is one call. Its result shows itself, its numbers can be looked up, and ``save`` writes the report.
Here it is kept small: two sections and no stress sets.
"""

import matplotlib.pyplot as plt

import secondguess as sg

result = sg.audit(data="digits", epochs=5, stress=[], sections=["accuracy", "calibration"], minutes=None)
result

# %%
# Every number has an interval and a name, by which ``--assert`` gates it in continuous integration.

wanted = [name for name in result.numbers if name.startswith(("accuracy", "calibration"))][:8]
for name in wanted:
    print(f"{name:40} {result.numbers[name].interval}")

# %%

figure, axis = plt.subplots(figsize=(6, 2.6))
for place, name in enumerate(wanted):
    interval = result.numbers[name].interval
    axis.plot([interval.low, interval.high], [place, place], lw=3)
    axis.plot(interval.value, place, "o", color="black")
axis.set(yticks=range(len(wanted)), yticklabels=wanted)
axis.invert_yaxis()
figure.tight_layout()
