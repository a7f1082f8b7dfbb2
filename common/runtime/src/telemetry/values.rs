//! Possible values of attributes that have few, with their meanings: for the manual, and for code that shows zero
//! counts from the start.

/// Values and their meanings.
type Values = &'static [(&'static str, &'static str)];

/// Reasons why the activator itself responded to a request. Also the values of `error_type` and `x-zeroscale-reason`.
pub const REFUSALS: Values = &[
    ("no-revision", "nobody answers to its host, or name (404)"),
    ("not-served", "the workload of its port is not known, or no more (503)"),
    ("not-synced", "the activator has not learnt the workloads yet (503)"),
    ("max-held", "as many requests are held for the workload as may be (503)"),
    ("memory", "clients use as much memory as they may, and those who give way have not gone (503)"),
    ("memory-share", "of that memory this workload uses most (503)"),
    ("answer-memory", "the share has no room for the head of the pod's answer (502)"),
    ("max-connections", "clients have all connections, and most of them are this workload's or this client's (503)"),
    (
        "timeout",
        "no pod was ready in the workload's time for that; in the drop-in, the request took longer than its time (504)",
    ),
    ("response-start-timeout", "no response began in the workload's time for that (504)"),
    ("idle-timeout", "nothing moved for the workload's time for that (504)"),
    ("request-timeout", "the exchange with a pod took longer than the workload's time for that (504)"),
    ("failing", "the workload's pods crash, or cannot start (503)"),
    ("paused", "the workload is paused, and has no pods (503)"),
    ("fallback", "the workload did not wake in time, and its fallback did not answer (502)"),
    ("deleted", "the workload was deleted meanwhile (503)"),
    ("elsewhere", "the activator that holds the workload could not be reached (503)"),
    ("pod", "a pod did not answer, and the request could not be sent to another (502)"),
    ("client-gone", "the client went away before there was an answer"),
    ("malformed", "it can be understood in two ways, or not at all (400)"),
    ("unsupported", "it asks for what is not offered (such as 417)"),
];

/// Kinds of responses that need no pod.
pub const ANSWERS: Values = &[
    ("page", "the page of a workload that wakes"),
    ("page-paused", "the page of a workload that is paused, and has no pods"),
    ("page-events", "the stream of events by which a page waits"),
    ("page-events-full", "such a stream was refused: too many are open (503)"),
    ("placeholder", "what `wake.placeholder` says"),
    ("static", "what `wake.static` says"),
    ("fallback", "the answer of the Service that `wake.fallback` names"),
];

/// Phases of a cold start.
pub const PHASES: Values = &[
    ("signal", "until the autoscaler is told"),
    ("pod", "until the address of a pod is known"),
    ("probe", "until a probe of it passes"),
    ("forward", "until the head of its response"),
];

/// Ends of relayed connections.
pub const TCP_ENDS: Values = &[
    ("closed", "both sides had closed it"),
    ("client", "the client broke it off"),
    ("pod", "the pod broke it off"),
    ("request", "the client sent what a pod could read as an HTTP request that is not in order"),
    ("idle-timeout", "nothing moved for the workload's time for that"),
    ("drain", "the activator ended"),
];

/// Ends of client connections that the activator refuses or closes.
pub const CLIENT_ENDS: Values = &[
    ("limit", "refused: there are as many as may be"),
    ("room", "ended: others needed its place"),
    ("idle", "ended: nothing happened on it"),
];

/// Ways of using pods with a hard limit.
pub const STANDINGS: Values = &[
    ("undecided", "the process has just begun: requests for them wait"),
    ("alone", "there is one activator, and all are its own"),
    ("divided", "each activator sends to its part, by Knative's assignment"),
    ("shared", "each workload has a holder, to which the others relay, under one limit"),
];

/// Outcomes of a wake.
pub const WAKES: Values = &[
    ("ready", "a pod became ready"),
    ("failed", "pods were asked for, and none was ready before nobody asked any more"),
    ("refused", "the API server accepted no change of the replicas before nobody asked any more"),
];

/// States of pod time: running or saved.
pub const POD_TIMES: Values = &[
    ("run", "pods of the workload existed, each counted"),
    ("saved", "the workload slept: counted as one pod, however many would have run"),
];

/// Outcomes of an evaluation.
pub const DECISIONS: Values = &[
    ("scale", "so many pods"),
    ("pods", "nothing: pods could not be counted"),
    ("not-collecting", "nothing: no metrics are collected for the workload"),
    ("no-data", "nothing: its pods are asked, and none has answered for a stable window"),
    (
        "not-attested",
        "nothing: an activator is ready and was not heard, and what the others carry asks for no more pods",
    ),
];

/// Outcomes of a write to the API server.
pub const WRITES: Values = &[
    ("ok", "done"),
    ("conflict", "somebody else wrote first (409)"),
    ("refused", "the API server refused it (another 4xx)"),
    ("failed", "the API server failed, or could not be reached"),
    ("unanswered", "no answer came in time; it may have been carried out"),
    ("not-sent", "the lease was about to end, or it was outdated when it had its token"),
];

/// Reasons why a frame of a stat connection was dropped.
pub const BAD_FRAMES: Values = &[
    ("NotBinary", "it was text"),
    ("Undecodable", "it held no batch of stats"),
    ("TooLarge", "it had more than 8 MiB; the connection was closed"),
    ("Forbidden", "the WebSocket protocol forbids it; the connection was closed"),
    ("Unfinished", "its end did not come in time; the connection was closed"),
];

/// Reasons why a stat was dropped.
pub const DROPPED: Values = &[
    ("UnknownRevision", "no revision of that name is collected here"),
    ("NotFinite", "one of its numbers is none"),
    ("Negative", "one of its numbers is below zero"),
    ("TooLarge", "one of its numbers is beyond anything that a pod can see"),
    ("Future", "its time stamp is far ahead"),
    ("Misrouted", "two hops between autoscalers have not brought it to its owner"),
    ("Expired", "its owner could not be reached in time, or there was none"),
    ("QueueFull", "too many waited for its owner"),
    ("Impostor", "its sender has proven to be another pod"),
];
