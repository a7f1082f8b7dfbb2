//! The manual's page about ZeroScalers, made from the definition: every field with its type, default and rule.

use super::checks::{Check, fields};
use super::conditions::TYPES;
use super::crd::crd;
use super::rules::RULES;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, JSONSchemaProps, JSONSchemaPropsOrArray, JSONSchemaPropsOrBool,
};
use std::fmt::Write;

/// Where the page lies, from the root of the repository.
pub const PAGE: &str = "deploy/docs/zeroscaler.md";

const HEAD: &str = "<!-- Generated: cargo run -p common-api --example crds -->
# ZeroScaler

One object beside an ordinary workload and its Service. While nobody calls the Service the workload has no pods; the
first request or connection wakes it, and waits for it. The shortest one:

```yaml
apiVersion: zeroscale.dev/v1alpha1
kind: ZeroScaler
metadata: {name: hello}
spec:
  target: {kind: Deployment, name: hello}
```

`kubectl explain zeroscaler.spec --recursive` says what this page says. What one object can tell is refused by `kubectl
apply`, with field, value and rule; what only the cluster can tell is a condition of its status. No annotation on it or on
its workload configures anything.

A default that names `config-autoscaler` is the cluster's: what that ConfigMap says holds for every object that does not
say it itself. Durations are written as `90s`, `1m30s` or `500ms`.
";

const TARGETS: &str = "A target of another kind than Deployment and StatefulSet is taken over once its `spec.replicas` is set, which is where its scale
is read; until then it is refused (Invalid). Some kinds, such as Argo's Rollout, leave it to their controller what an absent
one means: write the number down. A kind that has its scale elsewhere, or no scale subresource, cannot be scaled.
";

const SERVICES: &str = "
## Services

Without `services` these are served: the Service with the target's name, otherwise the oldest that selects its pods; and each
other one that selects them, has a cluster IP, and leads to a port of the pods that the first one leads to, or is of type
LoadBalancer or NodePort. All of their load counts, each of them wakes the workload, and each gets its selector back.

Every other Service that selects the pods is direct: it leads to the pods while there are any, and wakes nobody. So a scrape of
metrics on a port of its own wakes nobody, and neither does a headless Service. `status.services` lists both kinds, and why
one is direct. To serve others, or fewer, name those that are to be served, the main one first:

```yaml
spec:
  target: {name: shop}
  services: [{name: shop}, {name: shop-admin}]
```

A Service that another ZeroScaler has, or whose name is that of another one's target, is that one's; the condition Adopted says
so. Ports of several Services that lead to the same port of the pods are one port in `ports` and `status.ports`, under its
name in the first of them; either name selects it.

On the ports that all workloads share, the names of each Service that leads to the first of the ports lead here
(`status.services[].onSharedPorts`).

`sessionAffinity: ClientIP` of any of them is honoured, for requests and for tcp: a client goes to the same pod as long as that
is ready. Each activator picks the same one, by a hash of the client's and the pods' addresses; its timeout does not apply. The
client is the peer of the connection; if that is a trusted proxy, the last address in `X-Forwarded-For`. Under a hard
limit a client whose pod is full gets the next one, and where several activators share the limit any pod that has room.

### Pods of others

A pod counts, and gets requests, if the target's selector finds it and the target controls it: itself, or through
ReplicaSets. Pods of another Deployment, of a Job or of nobody that have the same labels are left out, asleep and awake, and the
condition PodsOwned (reason SelectorOverlaps) names who controls them. A served Service leads to the target's own pods alone,
even if it led to the others before: give these different labels, and a Service of their own. Finished pods are in nobody's way.

The pods of a target of another kind may come about in ways of its own. Others' are those that lead to a Deployment, a
StatefulSet or a ReplicaSet which does not lead to the target; all the rest count as its own, also where it cannot be read who
controls a pod.
";

const METRICS: &str = "`metrics` and `behavior` are those of a
[HorizontalPodAutoscaler](https://kubernetes.io/docs/reference/kubernetes-api/autoscaling/horizontal-pod-autoscaler-v2/),
each metric with its `type` and the field of that name.
";

const WAKING: &str = "
## While it wakes, and by the clock

Without a word of `page`, `placeholder`, `static` or `fallback` every request waits for the workload. With them:

```yaml
apiVersion: zeroscale.dev/v1alpha1
kind: ZeroScaler
metadata: {name: shop}
spec:
  target: {name: shop}
  wake:
    page: {}                                   # browsers see that it wakes, since when, and how long that usually takes
    placeholder:                               # who sends jobs need not wait
      match: {paths: [/jobs/*], methods: [POST]}
      response: {status: 202, body: accepted}
    static:                                    # nobody wakes for these
    - {match: {paths: [/healthz]}, response: {body: ok}}
    - {match: {paths: [/robots.txt]}, response: {body: \"User-agent: *\"}, answer: Always}
    fallback: {service: shop-sorry, after: 20s}  # who has waited for so long is answered by this Service
  schedules:                                   # two pods on working days, ready when the day begins
  - {cron: 0 8 * * 1-5, timeZone: Europe/Berlin, duration: 10h, min: 2, prewarm: 2m}
```

- A request gets the first of these that means it: the page's stream of events, `static`, `page`, `placeholder`; else it is
  held. While pods are ready they answer everything but `static` entries with `answer: Always`, and the stream.
- The page is for people: a GET that prefers HTML, from a browser's window, not from a script or for a part of another page.
  It is a 503 with Retry-After and `no-store`. It listens to `PATH/.zeroscale/wake`, a path that a workload with a page does
  not get, and loads again when that says `ready`; without a stream, or scripts, it asks again after some seconds. 256 streams
  of one workload and 2048 of all are served by one activator; beyond, a stream is refused (`page-events-full`).
- Whoever sees the page or gets a placeholder wakes the workload as whoever is held does; an open stream keeps that going
  until it is ready. Static answers are no load, and neither are such requests when pods answer them, unless
  `keepsAwake: true`.
- Of a workload that is paused without pods nothing says that it wakes: a fallback answers at once; else the page says that it
  is paused (our own, if yours does not name `{{state}}`), and everybody else is refused (`paused`), `placeholder` or not.
- What is held falls back on another Service after a time, or at once when the pods crash-loop or there is no room to hold it,
  if no pod was ready when it came and none is by then, or once those that are have been lost. Nothing of it has been sent
  before, so its body goes there whole; what has once been given to a pod is that pod's to answer, and no body is sent twice.
  From then on it is no load of the workload. The answer has `x-zeroscale-fallback` with the Service's name. The Service gets
  the request as the workload would, with `x-zeroscale-fallback` and the workload's name, and a request with that field is
  given to no further fallback: it waits where it is. A fallback that does not answer is a 502 (`fallback`). One that is not
  there, speaks TLS, or leads back here by the fallbacks of others, or on by more than eight, is left out, and the condition
  AnswersResolved says why.
- HTML and bodies are part of the object, each of at most 32768 characters. A page without `html` is the cluster's: `html` of
  the ConfigMap `config-page` in the activators' namespace, whose edits take effect at once; without that it is ours. In HTML `{{workload}}`, `{{since}}`, `{{elapsed}}`,
  `{{typical}}`, `{{retry}}`, `{{cause}}` and `{{state}}` (`waking` or `paused`) are replaced, escaped; `{{script}}` is where what
  replaces the page goes.
- Each answer of ours has `x-zeroscale-reason` (`page`, `page-paused`, `page-events`, `page-events-full`, `placeholder`,
  `static`). They and those of fallbacks count in `zeroscale_answered_total`.
- `status.nextChange` says when `min` and `max` change next by the schedules. Of several in force the one with the largest
  `min` counts.
";

const ORDERS: &str = "
## Paused, woken and put to sleep by hand

`paused: true` keeps everything as it is until somebody takes it away: replicas, and whom the Service leads to. The condition
Active then has the reason Paused, beside what it says otherwise. The load is measured all the same. Whoever changes the
replicas by hand is followed: a pod that is started so is served. While there is none, requests are refused at once (503,
`paused`) instead of waiting for what does not come; a fallback answers for it, and static answers are given. Deleting the
object gives everything back as ever.

`request` is carried out once for each value of `at`, and `status.request` says what became of it; ordinary rules hold again
from then on. `Awake` is for before the first visitor comes: it starts as many pods as a request would, which sleep again after
a window without requests. `Asleep` is for afterwards: the load of the window that has passed is forgotten, and the last pod
goes once activators are proven to be in its path. It is kept awake (result Kept) while somebody is being served, by a minimum
of its own or of a schedule, or by a metric; nobody is turned away for it. `kubectl zeroscale pause`, `resume`, `wake` and
`sleep` write these fields, and nothing else.
";

/// Fields whose own fields are explained elsewhere: those of another API, and those that stand in the spec as well.
const ELSEWHERE: [&str; 4] = ["spec.metrics", "spec.behavior", "status.fallback.match", "status.conditions"];

/// The page.
pub fn page() -> String {
    let crd = crd();
    let mut page = HEAD.to_owned();
    for (field, title) in [("spec", "Spec"), ("status", "Status")] {
        // A String takes whatever is written.
        let _ = write!(page, "\n## {title}\n\n| field | type | default | meaning |\n|---|---|---|---|\n");
        if let Some(schema) = root(&crd).and_then(|root| root.properties.as_ref()?.get(field)) {
            rows(schema, field, &mut page);
        }
        if field == "spec" {
            let _ = write!(page, "\n{TARGETS}\n{METRICS}\nBesides, between fields of one object:\n\n");
            for rule in RULES {
                let _ = writeln!(page, "- {}.", rule.says);
            }
        }
    }
    page.push_str(SERVICES);
    page.push_str(WAKING);
    page.push_str(ORDERS);
    let _ = write!(
        page,
        "\n## Conditions and columns\n\nConditions are of the types {}. `lastTransitionTime` is ",
        list(&TYPES)
    );
    page.push_str("when the status of one last changed.\n");
    page.push_str("An object that is deleted gives back replicas, the Service's selector and its endpoints first.\n");
    page.push_str("So does one that names another target, before it takes that up, and one whose Service has become headless or an\n");
    page.push_str("ExternalName, which leads nobody to the activators. The object stays until the Service has its selector back, however\n");
    page.push_str("long the API server refuses that.\n\n");
    let columns = crd.spec.versions.iter().flat_map(|version| version.additional_printer_columns.iter().flatten());
    let (wide, plain): (Vec<_>, Vec<_>) = columns.partition(|column| column.priority.is_some());
    let names = |columns: &[&Column]| list(&columns.iter().map(|column| column.name.as_str()).collect::<Vec<_>>());
    let _ = writeln!(page, "`kubectl get zs` shows {}; with `-o wide` also {}.", names(&plain), names(&wide));
    page
}

type Column = k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceColumnDefinition;

/// Every field of the definition that has no description, by path.
pub fn unexplained() -> Vec<String> {
    let crd = crd();
    let mut found = Vec::new();
    if let Some(root) = root(&crd) {
        walk(root, "", &mut |schema, path| {
            if schema.description.as_deref().unwrap_or_default().is_empty() {
                found.push(path.to_owned());
            }
        });
    }
    found
}

fn root(crd: &CustomResourceDefinition) -> Option<&JSONSchemaProps> {
    crd.spec.versions.first()?.schema.as_ref()?.open_api_v3_schema.as_ref()
}

/// Calls `visit` with each field, at any depth, and its path.
fn walk(schema: &JSONSchemaProps, path: &str, visit: &mut dyn FnMut(&JSONSchemaProps, &str)) {
    for (name, field) in schema.properties.iter().flatten() {
        let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
        visit(field, &path);
        walk(field, &path, visit);
        if let Some(JSONSchemaPropsOrArray::Schema(items)) = &field.items {
            walk(items, &format!("{path}[]"), visit);
        }
    }
}

fn rows(schema: &JSONSchemaProps, path: &str, page: &mut String) {
    for (name, field) in schema.properties.iter().flatten() {
        let path = format!("{path}.{name}");
        let shown = path.split_once('.').map_or(path.as_str(), |(_, rest)| rest);
        let default = field.default.as_ref().map(|default| default.0.to_string()).filter(|text| text != "{}");
        let default = default.map(|text| format!("`{}`", text.trim_matches('"'))).unwrap_or_default();
        let required = schema.required.as_ref().is_some_and(|required| required.contains(name));
        let default = if required && path.starts_with("spec") { "required".to_owned() } else { default };
        let rule = rule(&path).map(|rule| format!(" Refused unless: {rule}.")).unwrap_or_default();
        let text = field.description.as_deref().unwrap_or_default().replace('|', "\\|").replace('\n', " ");
        let _ = writeln!(page, "| `{shown}` | {} | {default} | {text}{rule} |", kind(field));
        if ELSEWHERE.contains(&path.as_str()) {
            continue;
        }
        rows(field, &path, page);
        if let Some(JSONSchemaPropsOrArray::Schema(items)) = &field.items {
            rows(items, &format!("{path}[]"), page);
        }
    }
}

/// What is expected of a field, unless its type says it.
fn rule(path: &str) -> Option<String> {
    let of = |wanted: &str| fields().find(|(field, _)| *field == wanted).map(|(_, check)| check);
    let check = of(path).or_else(|| of(&format!("{path}[]")))?;
    match check {
        // The description says what they are.
        Check::OneOf(_) => None,
        check => Some(check.rule().replace(" is expected", "").replace(" are expected", "")),
    }
}

fn kind(field: &JSONSchemaProps) -> String {
    let name = field.type_.as_deref().unwrap_or("number or text");
    match (&field.items, &field.additional_properties) {
        (Some(JSONSchemaPropsOrArray::Schema(items)), _) => format!("list of {}s", kind(items)),
        (_, Some(JSONSchemaPropsOrBool::Schema(_))) => "map of texts".to_owned(),
        _ => match (name, field.format.as_deref()) {
            ("string", Some("date-time")) => "time".to_owned(),
            ("string", _) => "text".to_owned(),
            ("integer", _) => "whole number".to_owned(),
            (name, _) => name.to_owned(),
        },
    }
}

fn list(names: &[&str]) -> String {
    names.join(", ")
}
