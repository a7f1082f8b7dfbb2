//! Possible values of attributes that have few, with their meanings: for the manual, and for code that exports zero
//! counts from the start.

/// Values and their meanings.
type Values = &'static [(&'static str, &'static str)];

/// Reasons why the activator itself responded to a request. Also the values of `error_type` and `x-zeroscale-reason`.
pub const REFUSALS: Values = &[
    ("no-revision", "its host or name leads to no workload (404)"),
    (
        "guarded",
        "NetworkPolicies restrict who may connect to the workload, and the request came to a shared port (403)",
    ),
    ("not-served", "the workload of its port is unknown or no longer served (503)"),
    ("not-synced", "the activator does not know the workloads yet (503)"),
    ("max-held", "the maximum number of requests is held for the workload (503)"),
    ("memory", "the memory for clients is used up, and those that give way are not closed yet (503)"),
    ("memory-share", "that memory is used up, and this workload uses most of it (503)"),
    ("answer-memory", "the share has no room for the head of the pod's response (502)"),
    ("max-connections", "all connections are used, most of them by this workload or this client (503)"),
    (
        "timeout",
        "no pod was ready within the workload's wake timeout; in the drop-in, the request took longer than its timeout (504)",
    ),
    ("response-start-timeout", "no response began within the workload's timeout (504)"),
    ("idle-timeout", "no data was transferred within the workload's idle timeout (504)"),
    ("request-timeout", "the exchange with a pod took longer than the workload's request timeout (504)"),
    ("failing", "the workload's pods crash or cannot start (503)"),
    ("paused", "the workload is paused and has no pods (503)"),
    ("fallback", "the workload did not wake in time, and its fallback did not respond (502)"),
    ("deleted", "the workload was deleted while the request waited (503)"),
    ("elsewhere", "the activator that holds the workload could not be reached (503)"),
    ("pod", "a pod did not respond, and the request could not be sent to another (502)"),
    ("client-gone", "the client disconnected before the response"),
    ("malformed", "the request is ambiguous or invalid (400)"),
    ("unsupported", "the request needs something that is not supported (such as 417)"),
];

/// Kinds of responses that need no pod.
pub const ANSWERS: Values = &[
    ("page", "the page of a workload that is starting"),
    ("page-paused", "the page of a workload that is paused and has no pods"),
    ("page-events", "the event stream of a page"),
    ("page-events-full", "such a stream was refused: the workload's share of memory is used up (503)"),
    ("placeholder", "the response of `wake.placeholder`"),
    ("static", "the response of `wake.static`"),
    ("fallback", "the response of the Service in `wake.fallback`"),
];

/// Phases of a cold start.
pub const PHASES: Values = &[
    ("signal", "until the autoscaler has the report"),
    ("pod", "until the address of a pod is known"),
    ("probe", "until a probe of it passes"),
    ("forward", "until the head of its response"),
];

/// Ends of relayed connections.
pub const TCP_ENDS: Values = &[
    ("closed", "both sides closed it"),
    ("client", "the client reset it"),
    ("pod", "the pod reset it"),
    ("request", "the client sent bytes that a pod could read as an invalid HTTP request"),
    ("idle-timeout", "no data was transferred within the workload's idle timeout"),
    ("drain", "the activator shut down"),
];

/// Ends of client connections that the activator refuses or closes.
pub const CLIENT_ENDS: Values = &[
    ("limit", "refused: the maximum number is reached"),
    ("room", "closed to make room for others"),
    ("idle", "closed because it was idle"),
];

/// Ways of using pods with a hard limit.
pub const SHARING_MODES: Values = &[
    ("undecided", "the process has just started: requests for these pods wait"),
    ("alone", "there is one activator, which uses all pods"),
    ("divided", "each activator sends to its subset, as in Knative"),
    ("shared", "each workload has a holder, to which the other activators relay"),
];

/// Outcomes of a wake.
pub const WAKES: Values = &[
    ("ready", "a pod became ready"),
    ("failed", "pods were requested, and none was ready before the requests ended"),
    ("refused", "the API server rejected the change of the replicas until the requests ended"),
];

/// States of pod time: running or saved.
pub const POD_TIMES: Values =
    &[("run", "pods of the workload existed; each counts"), ("saved", "the workload was at zero; counts as one pod")];

/// Outcomes of an evaluation.
pub const DECISIONS: Values = &[
    ("scale", "a desired number of pods"),
    ("pods", "none: pods could not be counted"),
    ("not-collecting", "none: no metrics are collected for the workload"),
    ("no-data", "none: its pods are scraped, and none has responded for a stable window"),
    ("not-attested", "none: a ready activator does not report, and the load of the others needs no more pods"),
];

/// Outcomes of a write to the API server.
pub const WRITES: Values = &[
    ("ok", "done"),
    ("conflict", "another writer was first (409)"),
    ("refused", "the API server rejected it (another 4xx)"),
    ("failed", "the API server failed or could not be reached"),
    ("unanswered", "no response in time; the write may have been carried out"),
    ("not-sent", "the lease was about to end, or the write was outdated when it got its token"),
];

/// Reasons why a frame of a stat connection was dropped.
pub const BAD_FRAMES: Values = &[
    ("NotBinary", "the frame was text"),
    ("Undecodable", "the frame contained no batch of stats"),
    ("TooLarge", "the frame had more than 8 MiB; the connection was closed"),
    ("Forbidden", "the WebSocket protocol forbids it; the connection was closed"),
    ("Unfinished", "the frame was not complete in time; the connection was closed"),
];

/// Reasons why a stat was dropped.
pub const DROPPED: Values = &[
    ("UnknownRevision", "no revision of that name is collected here"),
    ("NotFinite", "one of its numbers is not finite"),
    ("Negative", "one of its numbers is below zero"),
    ("TooLarge", "one of its numbers is beyond anything that a pod can see"),
    ("Future", "its timestamp is far in the future"),
    ("Misrouted", "it did not reach its owner within two hops"),
    ("Expired", "its owner could not be reached in time, or there was none"),
    ("QueueFull", "too many stats waited for its owner"),
    ("Impostor", "its sender is another pod"),
];
