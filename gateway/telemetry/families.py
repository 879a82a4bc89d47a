"""The metric families of the gateway: names, help texts and labels."""

from __future__ import annotations

from gateway.telemetry.instruments import Instruments


class MetricFamilies:
    """All families that `/metrics` has, one attribute each."""

    def __init__(self) -> None:
        make = self.instruments = Instruments("penstock_")
        self._add_requests(make)
        self._add_admission(make)
        self._add_cache(make)
        self._add_routing(make)
        self._add_discovery(make)
        self._add_process(make)

    def _add_requests(self, make: Instruments) -> None:
        """Add the families of finished requests: counts, latencies, tokens, cost."""
        self.requests = make.counter(
            "requests_total", "Requests by how they ended.", ("route", "deployment", "outcome")
        )
        self.rejected = make.counter("rejected_total", "Requests that were wrong, by the status sent.", ("status",))
        self.stages = make.histogram("stage_seconds", "Time in one stage of a request.", ("stage",))
        latency = ("deployment", "prompt_bucket", "cache")
        self.ttft = make.histogram("ttft_seconds", "Receipt to first token with content.", latency)
        self.tpot = make.histogram("tpot_seconds", "Time per output token after the first.", latency)
        self.total = make.histogram("total_seconds", "Receipt to last byte.", latency)
        self.overhead = make.histogram("overhead_seconds", "Added by the gateway, wait for a permit excluded.")
        self.slo = make.counter(
            "slo_total", "Answers with a latency target, by whether it was met.", ("lane", "target", "result")
        )
        self.prompt_tokens = make.counter("prompt_tokens_total", "Prompt tokens reported.", ("tenant",))
        self.completion_tokens = make.counter("completion_tokens_total", "Completion tokens reported.", ("tenant",))
        self.cost = make.counter("cost_total", "What answers cost, in the policy's currency.", ("deployment",))
        self.degraded = make.counter("degraded_total", "Requests admitted by a degradation step, by step.", ("step",))
        self.ignored_headers = make.counter(
            "ignored_headers_total", "Headers without effect: nonsense, or beyond what the key may use.", ("header",)
        )
        self.client_retries = make.counter("client_retries_total", "Requests that the client marked as retries.")
        self.cancelled_upstream = make.counter("cancelled_upstream_total", "Requests whose client left.", ("place",))
        self.cancel_seconds = make.histogram("cancel_seconds", "Client gone to everything released.", ("place",))
        self.answer_records = make.counter("answer_records_total", "Answers for the recording, by end.", ("end",))
        self.traces = make.counter("traces_total", "Traced requests, by the end of their spans.", ("end",))

    def _add_admission(self, make: Instruments) -> None:
        """Add the families of permits, queues and refusals."""
        self.shed = make.counter("shed_total", "Requests refused for load.", ("lane", "reason"))
        self.queue_depth = make.gauge("queue_depth", "Requests waiting for a permit.", ("lane",))
        self.queue_wait = make.histogram("queue_wait_seconds", "Wait for a permit.", ("lane",))
        self.concurrency_limit = make.gauge("concurrency_limit", "Permits that may be out at once.", ("deployment",))
        self.in_flight = make.gauge("in_flight", "Permits that are out.", ("deployment",))
        self.quota_refused = make.counter(
            "quota_refused_total", "Requests over one of their tenant's limits.", ("tenant", "limit")
        )

        self.quotes = make.counter("quotes_total", "Quotes given, refused and expired unused.", ("event",))
        self.quote_uses = make.counter("quote_uses_total", "Quotes that requests sent back, by use.", ("use",))
        self.quoted_bounds = make.counter(
            "quoted_bounds_total",
            "Bounds of quotes that requests sent back, by whether they were met.",
            ("kind", "result"),
        )
        self.quotes_held = make.gauge("quotes_held", "Permits that quotes hold now.")

    def _add_cache(self, make: Instruments) -> None:
        """Add the families of the response cache and of trimming."""
        self.cache_lookups = make.counter("cache_lookups_total", "Cache lookups.", ("result", "reason"))
        self.drafts = make.counter(
            "cache_drafts_total", "Near misses whose response went to a deployment as a prediction.", ("route",)
        )
        self.prediction_tokens = make.counter(
            "prediction_tokens_total",
            "Tokens of predictions that deployments checked, by who predicted.",
            ("source", "result"),
        )
        self.embeddings = make.counter("embeddings_total", "Texts to encode, by result.", ("result",))
        self.cache_entries = make.gauge("cache_entries", "Cached responses.")
        self.cache_index_entries = make.gauge("cache_index_entries", "Cached responses in the vector index.")
        self.cache_index_waiting = make.gauge("cache_index_waiting", "Cached responses that wait to be indexed.")
        self.cache_late_index = make.counter(
            "cache_late_index_total", "Cached responses that had to wait to be indexed, by end.", ("end",)
        )
        whose = ("tenant", "route")
        wrong = "Wrong similar answers over all requests of the last day, from audits"
        self.cache_error_ratio = make.gauge("cache_error_ratio", f"{wrong}.", whose)
        self.cache_error_ratio_low = make.gauge("cache_error_ratio_low", f"{wrong}; lower 95 % limit.", whose)
        self.cache_error_ratio_high = make.gauge("cache_error_ratio_high", f"{wrong}; upper 95 % limit.", whose)
        self.cache_semantic_level = make.gauge(
            "cache_semantic_level", "0: open; 1 to 3: tightened; 4: closed, exact answers only.", whose
        )
        self.recalls = make.counter("recalls_total", "Recall notices recorded, by what found the error.", ("reason",))
        self.recall_receivers = make.counter(
            "recall_receivers_total", "Receivers of similar answers, by whether they are remembered.", ("end",)
        )
        self.recall_webhooks = make.counter("recall_webhooks_total", "Attempts to send recall notices.", ("end",))
        self.cache_audits = make.counter("cache_audits_total", "Similar answers compared with new ones.", ("verdict",))
        self.cache_sharing = make.counter(
            "cache_sharing_total",
            "Cache entries and notices that processes exchange, by event.",
            ("event",),
        )
        self.saved_tokens = make.counter("saved_tokens_total", "Tokens that no deployment was sent.", ("source",))
        self.cut_short_tokens = make.counter(
            "cut_short_tokens_total",
            "Tokens of cached responses whose request a deployment had been sent, and which was cancelled.",
            ("source",),
        )
        self.saved_cost = make.counter(
            "saved_cost_total",
            "Cost of what no deployment was sent, at the price of the route's dearest candidate.",
            ("source",),
        )
        self.trimmed_tokens = make.counter("trimmed_tokens_total", "Prompt tokens cut before sending.", ("strategy",))

    def _add_routing(self, make: Instruments) -> None:
        """Add the families of decisions, deployments and further attempts."""
        self.decisions = make.counter("routing_decisions_total", "Routing decisions.", ("policy", "choice", "reason"))
        self.forecast_error = make.gauge(
            "ttft_forecast_error_ratio",
            "|forecast - measured| / measured of times to first token, quantile of the last 512.",
            ("deployment", "quantile"),
        )
        self.deployment_ready = make.gauge("deployment_ready", "Whether the deployment is ready.", ("deployment",))
        self.deployment_draining = make.gauge(
            "deployment_draining", "Whether operators drained the deployment, all of its members.", ("deployment",)
        )
        labelled = ("deployment", "source", "verdict")
        self.routing_labels = make.counter("routing_labels_total", "Labels of the small model's answers.", labelled)
        self.cascade_threshold = make.gauge(
            "cascade_threshold", "Confidence from which a small model's answer goes on.", ("weak", "strong", "quality")
        )
        self.cascade_labels = make.gauge(
            "cascade_labels", "Labels with a confidence that the threshold rests on.", ("weak", "strong", "quality")
        )
        self.replays = make.counter("replays_total", "Recorded answers given again, by how they compare.", ("result",))
        self.explorations = make.counter(
            "routing_explorations_total",
            "First choices of routes that explore, by how they were made.",
            ("route", "result"),
        )
        compared = ("route", "deployment", "verdict")
        self.shadows = make.counter("shadows_total", "Answers held against another deployment's.", compared)
        self.retries = make.counter("retries_total", "Second attempts, by the deployment that failed.", ("deployment",))
        self.resumed_streams = make.counter(
            "resumed_streams_total",
            "Streams that broke and could be continued, by the deployment that failed.",
            ("deployment", "end"),
        )
        self.resume_pause = make.histogram(
            "resume_pause_seconds", "Failure of a stream to its next event elsewhere.", ("deployment",)
        )
        self.hedges = make.counter(
            "hedges_total",
            "Second attempts beside a late first one, by deployment.",
            ("deployment", "end"),
        )
        self.hedged_tokens = make.counter(
            "hedged_prompt_tokens_total", "Prompt tokens, estimated, of attempts that lost a hedge.", ("deployment",)
        )
        self.ejections = make.counter(
            "ejections_total", "Deployments taken out for their failures.", ("deployment", "reason")
        )
        self.panics = make.counter(
            "panics_total", "Decisions that used ejected deployments because there were no others.", ("route",)
        )
        self.start_waits = make.counter(
            "start_waits_total", "Requests for which only deployments that were starting were left.", ("route", "end")
        )

    def _add_discovery(self, make: Instruments) -> None:
        """Add the families of deployments whose members come and go."""
        self.members = make.gauge(
            "discovery_members", "Members of a deployment with discover, by state.", ("deployment", "state")
        )
        self.discovery_up = make.gauge(
            "discovery_up", "Whether the source of a deployment's members could be read the last time.", ("deployment",)
        )
        self.discovery_reads = make.counter(
            "discovery_reads_total", "Listings and failures of sources of members.", ("source", "result")
        )

    def _add_process(self, make: Instruments) -> None:
        """Add the families of the policy, the store and this process."""
        self.policy_info = make.gauge("policy_info", "1 for the revision in force.", ("revision",))
        self.policy_reload_success = make.gauge("policy_reload_success", "Whether the last reload was taken.")
        self.store_up = make.gauge("store_up", "Whether the store can be used.")
        self.store_seconds = make.histogram("store_seconds", "Time of one operation of the store.", ("operation",))
        self.store_failures = make.counter(
            "store_failures_total", "Operations of the store that failed.", ("operation", "reason")
        )
        self.loop_lag = make.gauge("event_loop_lag_seconds", "Worst delay of a timer since the last scrape.")
        self.background_failures = make.counter(
            "background_failures_total",
            "Unexpected errors of work in the background, which then begins again.",
            ("task",),
        )
        self.tasks = make.gauge("tasks", "Tasks on the event loop: requests, and the process's own work.")
        self.body_bytes = make.gauge("body_bytes", "Memory reserved for bodies of requests and answers.")
        self.log_dropped = make.counter("log_dropped_total", "Log lines dropped because the log could not keep up.")
