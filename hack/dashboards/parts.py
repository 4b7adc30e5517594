# SPDX-License-Identifier: Apache-2.0
"""What both boards are made of: variables, queries, panels and their place."""
from grafana_foundation_sdk.builders import common, dashboard, heatmap, prometheus, stat, table, timeseries
from grafana_foundation_sdk.models import common as common_models
from grafana_foundation_sdk.models import dashboard as models
from grafana_foundation_sdk.models import heatmap as heatmap_models
from grafana_foundation_sdk.models import prometheus as prometheus_models

DATA_MOVEMENT = "ingero-data-movement"
PODS = "ingero-pods"
SOURCE = models.DataSourceRef(type_val="prometheus", uid="${datasource}")

# A sentence of a description that begins so tells users, and the tests, that no data can be the truth.
MAY_BE_EMPTY = "May be empty: "
HOST_TIME = ("Host time, from the call's entry to its return, not time on the GPU: of an asynchronous call it "
             "is the time to enqueue it.")


# Queries

class Scope:
    """What the variables of a board select. Series of the agents have no pod of a workload."""

    def __init__(self, *labels):
        self.labels = labels

    def of(self, metric, more=""):
        selectors = [f'{label}=~"${label}"' for label in self.labels]
        return f"{metric}{{{','.join([*selectors, *([more] if more else [])])}}}"


AGENTS = Scope("node")


def rate(series):
    return f"rate({series}[$__rate_interval])"


def since(series, window):
    """Increase that counts what a series began with: a counter of errors appears with its first error,
    which increase() alone does not see. A series that was away for less than an hour has not begun."""
    return (f"((max_over_time({series}[{window}]) unless last_over_time({series}[1h] offset {window})) "
            f"or increase({series}[{window}]))")


def quantile(fraction, histogram_buckets, *by):
    return f"histogram_quantile({fraction}, sum by ({', '.join(('le', *by))}) ({rate(histogram_buckets)}))"


def sum_by(labels, expression):
    return f"sum by ({', '.join(labels)}) ({expression})" if labels else f"sum({expression})"


# The board

def link(title, uid, **variables):
    """A data link that sets variables of the other board, and keeps data source, node and time."""
    values = "".join(f"&var-{name}=${{{value}}}" for name, value in variables.items())
    return (dashboard.DashboardLink(title).type(models.DashboardLinkType.LINK).target_blank(False)
            .url(f"/d/{uid}?${{datasource:queryparam}}&${{node:queryparam}}{values}&${{__url_time_range}}"))


def variable(name, query, description):
    return (dashboard.QueryVariable(name).label(name).description(description).datasource(SOURCE).query(query)
            .multi(True).include_all(True).all_value(".*")
            .current(models.VariableOption(selected=True, text=["All"], value=["$__all"]))
            .refresh(models.VariableRefresh.ON_TIME_RANGE_CHANGED).sort(models.VariableSort.NATURAL_ASC))


class Board:
    """Panels from left to right, rows below each other; ids count up."""

    def __init__(self, uid, title, description, labels, other):
        self.scope = Scope(*labels)
        self._x = self._y = self._height = 0
        self._id = 0
        self._board = (
            dashboard.Dashboard(title).uid(uid).description(description).tags(["ingero", "gpu"]).editable()
            .refresh("30s").time("now-1h", "now").timezone("browser").version(1)
            .tooltip(models.DashboardCursorSync.CROSSHAIR)
            .link(dashboard.DashboardLink(other[0]).type(models.DashboardLinkType.LINK).url(f"/d/{other[1]}")
                  .icon("dashboard").tooltip("With the same variables and time").include_vars(True)
                  .keep_time(True))
            .with_variable(dashboard.DatasourceVariable("datasource").label("data source").type("prometheus")
                           .description("The Prometheus that scrapes the agents")))
        chosen = Scope()
        for label in labels:
            names = "ingero_node_ready|" if label == "node" else ""
            metric = f"__name__=~\"{names}gpu_cuda_operation_count_total|gpu_nccl_processes_total\""
            self._board.with_variable(variable(
                label, f"label_values({chosen.of('', metric)}, {label})",
                f"{label.capitalize()} of the workload; outside Kubernetes "
                + ("the container's id." if label == "container" else "there may be none.")))
            chosen = Scope(*chosen.labels, label)

    def _place(self, width, height):
        if self._x + width > 24:
            self._x, self._y, self._height = 0, self._y + self._height, 0
        place = models.GridPos(x=self._x, y=self._y, w=width, h=height)
        self._x, self._height = self._x + width, max(self._height, height)
        self._id += 1
        return place

    def row(self, title):
        self._x = 24
        self._board.with_row(dashboard.Row(title).grid_pos(self._place(24, 1)).id(self._id))

    def add(self, panel, width, height):
        self._board.with_panel(panel.grid_pos(self._place(width, height)).id(self._id).datasource(SOURCE))

    def build(self):
        return self._board.build()


# Panels

def thresholds(*steps):
    """(from, colour) pairs; the first has no lower end."""
    values = [models.Threshold(value=None if number == 0 else value, color=color)
              for number, (value, color) in enumerate(steps)]
    return dashboard.ThresholdsConfig().mode(models.ThresholdsMode.ABSOLUTE).steps(values)


GREEN_ONLY = ((None, "green"),)
RED_FROM_ONE = ((None, "green"), (1, "red"))
YELLOW_FROM_ONE = ((None, "green"), (1, "yellow"))


def ref_ids():
    return iter("ABCDEFGHIJKLMNOPQRSTUVWXYZ")


def instant(expression, ref_id):
    return (prometheus.Dataquery().expr(expression).ref_id(ref_id).instant().datasource(SOURCE)
            .format(prometheus_models.PromQueryFormat.TABLE))


def number(title, description, expression, *, steps=RED_FROM_ONE, no_value="no data", unit="short", links=()):
    """One number with a colour."""
    return (stat.Panel().title(title).description(description).unit(unit).decimals(0).no_value(no_value)
            .with_target(instant(expression, "A")).thresholds(thresholds(*steps)).data_links(list(links))
            .color_scheme(dashboard.FieldColor().mode(models.FieldColorModeId.THRESHOLDS))
            .color_mode(common_models.BigValueColorMode.BACKGROUND)
            .graph_mode(common_models.BigValueGraphMode.NONE)
            .reduce_options(common.ReduceDataOptions().calcs(["lastNotNull"]).values(False)))


def lines(title, description, unit, queries, *, no_value, links=(), steps=GREEN_ONLY, minimum=0.0, maximum=None):
    """`queries`: (expression, legend) pairs. Thresholds beyond the first colour are drawn as areas."""
    style = common_models.GraphThresholdsStyleMode
    panel = (timeseries.Panel().title(title).description(description).unit(unit).min(minimum)
             .no_value(no_value).data_links(list(links)).thresholds(thresholds(*steps))
             .thresholds_style(common.GraphThresholdsStyleConfig().mode(
                 style.AREA if len(steps) > 1 else style.OFF))
             .color_scheme(dashboard.FieldColor().mode(models.FieldColorModeId.PALETTE_CLASSIC))
             .draw_style(common_models.GraphDrawStyle.LINE).fill_opacity(8).line_width(1)
             .show_points(common_models.VisibilityMode.AUTO).span_nulls(False)
             .legend(common.VizLegendOptions().display_mode(common_models.LegendDisplayMode.TABLE)
                     .placement(common_models.LegendPlacement.BOTTOM).show_legend(True)
                     .calcs(["lastNotNull", "mean", "max"]).sort_by("Max").sort_desc(True))
             .tooltip(common.VizTooltipOptions().mode(common_models.TooltipDisplayMode.MULTI)
                      .sort(common_models.SortOrder.DESCENDING)))
    if maximum is not None:
        panel.max(maximum)
    for ref_id, (expression, legend) in zip(ref_ids(), queries):
        panel.with_target(prometheus.Dataquery().expr(expression).ref_id(ref_id).range().datasource(SOURCE)
                          .legend_format(legend).format(prometheus_models.PromQueryFormat.TIME_SERIES))
    return panel


def sizes(title, description, expression, *, unit, no_value):
    """A heatmap of the buckets of a histogram."""
    return (heatmap.Panel().title(title).description(description).no_value(no_value).calculate(False)
            .with_target(prometheus.Dataquery().expr(expression).ref_id("A").range().datasource(SOURCE)
                         .legend_format("{{le}}").format(prometheus_models.PromQueryFormat.HEATMAP))
            .thresholds(thresholds(*GREEN_ONLY))
            .y_axis(heatmap.YAxisConfig().unit(unit)).cell_values(heatmap.CellValues().unit("ops"))
            .color(heatmap.HeatmapColorOptions().mode(heatmap_models.HeatmapColorMode.SCHEME).scheme("Oranges")
                   .steps(64).scale(heatmap_models.HeatmapColorScale.EXPONENTIAL).exponent(0.5))
            .filter_values(heatmap.FilterValueRange().le(1e-9)).show_legend()
            .mode(common_models.TooltipDisplayMode.SINGLE))


def rows(title, description, keys, columns, *, no_value, links=None, sort=None):
    """A table. `keys`: labels that are columns; `columns`: (expression, title, unit, thresholds or None),
    each with one row per combination of the keys. `links`: links of a key's cells."""
    panel = (table.Panel().title(title).description(description).no_value(no_value).filterable(True)
             .thresholds(thresholds(*GREEN_ONLY))
             .sort_by([common.TableSortByFieldState().display_name(sort or columns[0][1]).desc(True)]))
    titles = {}
    for ref_id, (expression, column, unit, steps) in zip(ref_ids(), columns):
        panel.with_target(instant(expression, ref_id))
        titles["Value" if len(columns) == 1 else f"Value #{ref_id}"] = column
        properties = [models.DynamicConfigValue(id_val="unit", value=unit)]
        if steps:
            properties += [
                models.DynamicConfigValue(id_val="thresholds", value=thresholds(*steps).build()),
                models.DynamicConfigValue(id_val="custom.cellOptions", value={"type": "color-text"})]
        panel.override_by_name(column, properties)
    for key, found in (links or {}).items():
        panel.override_by_name(key, [models.DynamicConfigValue(id_val="links", value=[one.build() for one in found])])
    order = [*keys, *titles]
    panel.with_transformation(models.DataTransformerConfig(id_val="merge", options={}))
    panel.with_transformation(models.DataTransformerConfig(id_val="organize", options={
        "excludeByName": {"Time": True}, "renameByName": titles,
        "indexByName": {name: place for place, name in enumerate(order)}}))
    return panel


# Panels that both boards have

def wrong(board):
    """The first row."""
    scope = board.scope
    board.row("Is anything wrong?")
    in_range = ("in the time range of the board, the first one of a series included. "
                "The row of errors below has codes and pods.")
    nothing = "or vector(0)"
    board.add(number("NCCL errors", f"NCCL calls that returned an error {in_range} ncclInProgress is none.",
                     f"{sum_by((), since(scope.of('gpu_nccl_errors_total'), '$__range'))} {nothing}"), 3, 4)
    board.add(number("CUDA errors", f"CUDA runtime and driver calls that returned an error {in_range} "
                                    "cudaErrorNotReady is none.",
                     f"{sum_by((), since(scope.of('gpu_cuda_errors_total'), '$__range'))} {nothing}"), 3, 4)
    board.add(number("Slow calls", "Calls that took longer on the host than slowCallThreshold of their policy, "
                                   "else slow_call_threshold of the settings, in the time range of the board. "
                                   "0 also where no threshold is set, as by default.",
                     f"{sum_by((), since(scope.of('ingero_anomaly_count'), '$__range'))} {nothing}",
                     steps=YELLOW_FROM_ONE), 3, 4)
    board.add(number("Stalled communicators", "Communicators whose ranks have enqueued different numbers of "
                     "collectives, and none enqueued another for 5 minutes: ranks wait for one that does not "
                     "come. Ranks outside the selected pods count too. It says nothing of a GPU that hangs "
                     "after all ranks enqueued.", stalled(scope)), 3, 4)
    board.add(number("Events lost", "Events and details of calls that agents could not record, in the time "
                                    "range of the board. Above 0, numbers of workloads are too low.",
                     sum_by((), since(AGENTS.of("ingero_events_lost_total"), "$__range")),
                     no_value="no agent is scraped"), 3, 4)
    ready = AGENTS.of("ingero_node_ready")
    board.add(number("Agents not ready", "Agents that answer and do not count, now; /readyz of the agent says "
                                         "why. Agents that do not answer are in the next number.",
                     f"count({ready} == 0) or 0 * count({ready})", no_value="no agent is scraped"), 3, 4)
    seen = f"max by (node) (max_over_time({ready}[1h]))"
    board.add(number("Nodes without agent", "Nodes whose agent was scraped within the last hour and is not now: "
                     "down, unreachable, or removed on purpose. Needs the label node on the agents' own series, "
                     "which the monitors of the chart set.",
                     f"count({seen} unless max by (node) ({ready})) or 0 * count({seen})",
                     no_value="no agent is scraped"), 3, 4)
    reload = AGENTS.of("ingero_config_last_reload_successful")
    board.add(number("Settings refused", "Agents that refused the newest settings and keep older ones, now. Their "
                                         "log and Events name the line.",
                     f"count({reload} == 0) or 0 * count({reload})", no_value="no agent is scraped"), 3, 4)


SEQUENCE = "gpu_nccl_communicator_collectives_total"
KNOWN = 'comm_id!~"|other"'
# All ranks, also those of pods and nodes that are not selected: a rank alone is never behind.
ALL_RANKS = f"{SEQUENCE}{{{KNOWN}}}"


def apart():
    return f"(max by (comm_id) ({ALL_RANKS}) - min by (comm_id) ({ALL_RANKS}))"


def stalled(scope):
    return (f"count(({apart()} > 0) unless on (comm_id) (sum by (comm_id) (increase({ALL_RANKS}[5m])) > 0) "
            f"and on (comm_id) {SEQUENCE}{{{KNOWN}}} offset 5m "
            f"and on (comm_id) {scope.of(SEQUENCE, KNOWN)}) or vector(0)")


def communicators(board, legend):
    scope = board.scope
    board.row("Communicators")
    none = "no communicator is in use"
    board.add(lines("Ranks apart", "Collectives that the rank furthest ahead of a communicator has enqueued more "
                    "than the one furthest behind, with ranks outside the selected pods. Nodes are not scraped at "
                    "the same moment: a busy communicator is apart by as much as it enqueues in that time. A "
                    "number that stays, or grows, is a rank that does not follow.", "short",
                    [(f"{apart()} and on (comm_id) {scope.of(SEQUENCE, KNOWN)}", "{{comm_id}}")],
                    no_value=none), 12, 8)
    last = scope.of("gpu_nccl_communicator_last_enqueue_timestamp_seconds", KNOWN)
    by = "node, namespace, pod, container, comm_id, rank"
    board.add(lines("Time since the last collective", "Seconds since a rank enqueued its last collective. Idle is "
                    "no fault by itself: a rank may compute, or have nothing to do. One rank that is idle much "
                    "longer than the others of its communicator is.", "s",
                    [(f"time() - max by ({by}) ({last})", f"{legend} {{{{comm_id}}}} rank {{{{rank}}}}")],
                    no_value=none, steps=((None, "green"), (300, "yellow"), (1800, "red"))), 12, 8)
    keys = ["node", "namespace", "pod", "container", "comm_id", "comm_name", "rank", "nranks", "libnccl_version"]
    info = scope.of("gpu_nccl_communicator_info", KNOWN)

    def joined(expression):
        # topk: of a rank that is known by two names, one row.
        return (f"({expression}) * on ({by}) group_left (comm_name, nranks, libnccl_version) "
                f"(topk by ({by}) (1, max by ({', '.join(keys)}) ({info})))")

    sequence = f"max by ({by}) ({scope.of(SEQUENCE, KNOWN)})"
    behind = f"{sequence} * 0 + on (comm_id) group_left max by (comm_id) ({ALL_RANKS}) - {sequence}"
    board.add(rows("Communicators by rank", "Each rank of a communicator that has processes in the selected pods, "
                   "and how many collectives it is behind the rank furthest ahead, wherever that runs. Empty "
                   "cells: not known. The library is NCCL or RCCL.", keys,
                   [(joined(sequence), "collectives", "short", None),
                    (joined(behind), "behind", "short", YELLOW_FROM_ONE),
                    (joined(f"time() - max by ({by}) ({last})"), "since the last", "s",
                     ((None, "green"), (300, "yellow"), (1800, "red")))],
                   no_value=none, sort="behind"), 24, 9)


def error_lines(board, by, legend, links=()):
    """By code, in time."""
    window = ("in the rate interval before each point, the first one of a series included. Intervals overlap: "
              "points do not add up.")
    for title, metric, labels in (("NCCL errors by code", "gpu_nccl_errors_total", ("op_type", "result")),
                                  ("CUDA errors by code", "gpu_cuda_errors_total", ("operation", "error"))):
        text = " ".join(f"{{{{{label}}}}}" for label in labels)
        board.add(lines(title, f"Calls that returned an error {window}", "short",
                        [(sum_by((*by, *labels), since(board.scope.of(metric), "$__rate_interval")),
                          f"{legend} {text}")],
                        no_value="no call has returned an error", links=links), 12, 8)
