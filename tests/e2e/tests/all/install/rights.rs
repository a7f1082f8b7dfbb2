//! Compares the roles of both planes with the requests that the planes make while workloads scale from and to zero, and
//! are adopted and deleted.
//!
//! Planes of a local cluster use the manifests' own ServiceAccounts and roles. So a missing verb shows as a denied
//! request, and a surplus one as a rule that no request needed.

use crate::install::manifests::{folder, objects};
use crate::shared::until_scaler;
use anyhow::{Context, ensure};
use common_api::{PodAutoscaler, ServerlessService, ZeroScaler};
use e2e::space::SOON;
use e2e::{Entry, Load, TestEnv, Workload, bare};
use k8s_openapi::api::apps::v1::{Deployment, StatefulSet};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::api::networking::v1::NetworkPolicy;
use kube::api::{DynamicObject, ListParams, Patch, PatchParams};
use kube::{Api, ResourceExt};
use local::api::{Access, Audit};
use local::up::{PlaneId, UpOptions};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

/// Requests of each account, and whether each was permitted.
#[derive(Clone, Default)]
pub(crate) struct Record(Arc<Mutex<Vec<(String, Access, bool)>>>);

impl Record {
    /// Returns an audit hook that records requests of an API server.
    pub(crate) fn audit(&self) -> Audit {
        let record = self.clone();
        Audit::new(move |user, access, allowed| {
            let Some(account) = user.strip_prefix("system:serviceaccount:zeroscale-system:") else { return };
            record.0.lock().expect("record").push((account.to_owned(), access.clone(), allowed));
        })
    }

    /// Reports whether any request matches, given its account, its access and whether it was permitted.
    pub(crate) fn any(&self, wanted: impl Fn(&str, &Access, bool) -> bool) -> bool {
        self.0.lock().expect("record").iter().any(|(account, access, allowed)| wanted(account, access, *allowed))
    }

    pub(crate) fn has_request(&self, account: &str, verb: &str, resource: &str) -> bool {
        self.any(|who, access, _| (who, &*access.verb, &*access.resource) == (account, verb, resource))
    }

    /// Returns verb and resource of the autoscaler's writes, without its upkeep of leases and tokens.
    pub(crate) fn writes(&self) -> Vec<(String, String)> {
        let record = self.0.lock().expect("record");
        let own = record.iter().filter(|(account, ..)| account == "autoscaler");
        let own = own.map(|(_, access, _)| (access.verb.clone(), access.resource.clone()));
        let is_upkeep = |resource: &str| ["leases", "tokenreviews"].contains(&resource);
        own.filter(|(verb, resource)| {
            ["create", "update", "patch", "delete"].contains(&verb.as_str()) && !is_upkeep(resource)
        })
        .collect()
    }

    pub(crate) fn denied(&self) -> Vec<String> {
        self.denied_where(|_| true)
    }

    pub(crate) fn denied_where(&self, wanted: impl Fn(&Access) -> bool) -> Vec<String> {
        let record = self.0.lock().expect("record");
        let denied: BTreeSet<_> = record
            .iter()
            .filter(|(_, access, allowed)| !allowed && wanted(access))
            .map(|(account, access, _)| {
                format!("{account}: {} {}.{} in {:?}", access.verb, access.resource, access.group, access.namespace)
            })
            .collect();
        denied.into_iter().collect()
    }
}

/// One permission of a role.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Right {
    account: String,
    namespace: Option<String>,
    verb: String,
    group: String,
    resource: String,
    names: Vec<String>,
}

/// Returns all permissions that a kustomization grants to accounts.
pub(crate) fn rights(kustomization: &str) -> anyhow::Result<Vec<Right>> {
    let all = objects(kustomization)?;
    let texts = |value: &Value| -> Vec<String> {
        value.as_array().into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect()
    };
    let mut rights = Vec::new();
    for binding in all.iter().filter(|o| o["kind"] == "RoleBinding" || o["kind"] == "ClusterRoleBinding") {
        let named =
            |o: &&Value| o["kind"] == binding["roleRef"]["kind"] && o["metadata"]["name"] == binding["roleRef"]["name"];
        let role = all.iter().find(named).with_context(|| format!("role of {}", binding["metadata"]["name"]))?;
        let namespace = binding["metadata"]["namespace"].as_str().map(str::to_owned);
        for subject in binding["subjects"].as_array().context("subjects")? {
            for rule in role["rules"].as_array().context("rules")? {
                let (resources, verbs) = (texts(&rule["resources"]), texts(&rule["verbs"]));
                for group in texts(&rule["apiGroups"]) {
                    for (resource, verb) in resources.iter().flat_map(|name| verbs.iter().map(move |verb| (name, verb)))
                    {
                        rights.push(Right {
                            account: subject["name"].as_str().unwrap_or_default().into(),
                            namespace: namespace.clone(),
                            names: texts(&rule["resourceNames"]),
                            group: group.clone(),
                            resource: resource.clone(),
                            verb: verb.clone(),
                        });
                    }
                }
            }
        }
    }
    Ok(rights)
}

impl Right {
    pub(crate) fn anywhere(self) -> Self {
        Self { namespace: None, ..self }
    }

    pub(crate) fn covers(&self, account: &str, access: &Access) -> bool {
        let part = access.resource.split_once('/').map(|(_, part)| format!("*/{part}"));
        (account, &access.verb) == (self.account.as_str(), &self.verb)
            && (self.group == access.group || self.group == "*")
            && (self.resource == access.resource || Some(&self.resource) == part.as_ref())
            && self.namespace.as_ref().is_none_or(|namespace| *namespace == access.namespace)
            && (self.names.is_empty() || self.names.contains(&access.name))
    }
}

/// Changes the status of a ZeroScaler until the autoscaler corrects it after a conflict, which requires a `get`.
async fn conflict(env: &TestEnv, record: &Record, name: &str) -> anyhow::Result<()> {
    let scalers = env.api::<ZeroScaler>();
    let mut turn: i64 = 0;
    env.until(SOON, "a conflict over the status of a ZeroScaler", async || {
        for _ in 0..20 {
            turn += 1;
            let patch = json!({"status": {"observedGeneration": 1000 + turn}});
            scalers.patch_status(name, &PatchParams::default(), &Patch::Merge(patch)).await?;
        }
        Ok(record.has_request("autoscaler", "get", "zeroscalers"))
    })
    .await
}

/// Writes to leases until a holder finds that its own version is outdated.
async fn contend(env: &TestEnv, record: &Record) -> anyhow::Result<()> {
    let leases: Api<Lease> = Api::namespaced(env.client.clone(), "zeroscale-system");
    let mut turn: i64 = 0;
    env.until(SOON, "a conflict over a lease", async || {
        let all = leases.list(&ListParams::default()).await?;
        for lease in all.items.iter().cycle().take(50 * all.items.len()) {
            turn += 1;
            let patch = json!({"metadata": {"annotations": {"test/turn": turn.to_string()}}});
            leases.patch(&lease.name_any(), &PatchParams::default(), &Patch::Merge(patch)).await?;
        }
        Ok(record.has_request("autoscaler", "get", "leases"))
    })
    .await
}

/// Goal: the roles are exactly sufficient, also beside Knative Serving's definitions and objects, which are neither
/// read nor written. Method: a full life of two workloads, a replica that ends, and all requests of the accounts.
#[tokio::test(flavor = "multi_thread")]
async fn the_roles_are_exactly_sufficient() -> anyhow::Result<()> {
    let record = Record::default();
    // Two of each, because they look each other up.
    let options = UpOptions { activators: 2, autoscalers: 2, audit: Some(record.audit()), ..UpOptions::default() };
    let env = TestEnv::with_short_grace(options).await?;
    let theirs = create_knatives(&env).await?;
    let exercised = exercise(&env, &record).await;
    let now = [
        env.api::<PodAutoscaler>().get("theirs").await?.metadata,
        env.api::<ServerlessService>().get("theirs").await?.metadata,
    ];
    let replicas = env.replicas("theirs").await?;
    env.end().await?;

    ensure!(record.denied().is_empty(), "missing rights: {:#?}", record.denied());
    exercised?;
    for (before, now) in theirs.iter().zip(now) {
        ensure!(before.metadata.resource_version == now.resource_version, "{now:?}");
    }
    ensure!(replicas == 2 && !record.any(|_, access, _| access.group.contains("knative.dev")), "requested");
    for kustomization in ["base", "openshift", "custom-metrics"] {
        let rights = rights(kustomization)?;
        let of_knative: Vec<_> = rights.iter().filter(|right| right.group.contains("knative.dev")).collect();
        ensure!(of_knative.is_empty(), "{kustomization}: {of_knative:#?}");
    }
    ensure_all_used(&record, rights("base")?)
}

/// Creates a workload of Knative's, as its controllers write it.
async fn create_knatives(env: &TestEnv) -> anyhow::Result<Vec<DynamicObject>> {
    bare::define_shared_resources(&env.client).await?;
    let target = json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": "theirs"});
    env.create::<Deployment>(Workload::new("theirs").replicas(2).deployment(&e2e::space::program()?)).await?;
    let mut created = Vec::new();
    for (group, kind, spec) in [
        ("autoscaling", "PodAutoscaler", json!({"scaleTargetRef": target, "protocolType": "http1"})),
        ("networking", "ServerlessService", json!({"objectRef": target, "protocolType": "http1", "mode": "Serve"})),
    ] {
        let object = json!({"apiVersion": format!("{group}.internal.knative.dev/v1alpha1"), "kind": kind,
            "metadata": {"name": "theirs"}, "spec": spec});
        created.push(bare::create(&env.client, Some(&env.namespace), object).await?);
    }
    Ok(created)
}

/// Goal: SECURITY.md has a row for each permission of the base with exactly its verbs, and no others. Method: rows of
/// its two tables, read as text.
#[test]
fn security_md_explains_each_permission() -> anyhow::Result<()> {
    let page = folder().join("../../.github/SECURITY.md");
    let page = std::fs::read_to_string(&page).with_context(|| page.display().to_string())?;
    let words = |cell: &str| -> Vec<String> { cell.split('`').skip(1).step_by(2).map(str::to_owned).collect() };
    let mut explained = BTreeSet::new();
    for (account, part) in [("activator", "The activator's"), ("autoscaler", "The autoscaler's")] {
        let (_, part) = page.split_once(part).context(part)?;
        let rows = part.lines().skip_while(|line| !line.starts_with('|')).take_while(|line| line.starts_with('|'));
        for row in rows.skip(2) {
            let cells: Vec<&str> = row.trim_matches('|').split('|').map(str::trim).collect();
            ensure!(cells.len() == 4 && cells.iter().all(|cell| !cell.is_empty()), "{row}");
            let (resources, place) = cells[0].split_once(" in ").unwrap_or((cells[0], ""));
            let resources = resources.split_once(" of ").map_or(resources, |(resources, _)| resources);
            for resource in words(resources) {
                for verb in words(cells[1]) {
                    explained.insert((account.to_owned(), place.replace('`', ""), resource.clone(), verb));
                }
            }
        }
    }
    let row = |right: Right| (right.account, right.namespace.unwrap_or_default(), right.resource, right.verb);
    let given: BTreeSet<_> = rights("base")?.into_iter().map(row).collect();
    let missing: Vec<_> = given.difference(&explained).collect();
    let surplus: Vec<_> = explained.difference(&given).collect();
    ensure!(missing.is_empty() && surplus.is_empty(), "without a row: {missing:#?}; not given: {surplus:#?}");
    Ok(())
}

pub(crate) fn ensure_all_used(record: &Record, rights: Vec<Right>) -> anyhow::Result<()> {
    let surplus: Vec<_> = rights
        .into_iter()
        // Events of a pod are listed once it has been starting for ten seconds, which no pod here takes.
        .filter(|right| (right.verb.as_str(), right.resource.as_str()) != ("list", "events"))
        // The controller of a pod is looked up if labels match pods of other owners, which does not happen here.
        .filter(|right| (right.verb.as_str(), right.group.as_str()) != ("get", "apps"))
        .filter(|right| !record.any(|account, access, _| right.covers(account, access)))
        .map(|right| format!("{}: {} {}.{}", right.account, right.verb, right.resource, right.group))
        .collect();
    ensure!(surplus.is_empty(), "permissions that no request needed: {surplus:#?}");
    Ok(())
}

/// Goal: if owner references are enforced, the OpenShift kustomization permits those of our objects.
async fn finalizer_permissions_match_owners(env: &TestEnv) -> anyhow::Result<()> {
    let mut owners = BTreeSet::new();
    let services = env.api::<Service>().list(&ListParams::default()).await?.into_iter().map(|o| o.metadata);
    let slices = env.api::<EndpointSlice>().list(&ListParams::default()).await?.into_iter().map(|o| o.metadata);
    for owner in services.chain(slices).flat_map(|meta| meta.owner_references.unwrap_or_default()) {
        let group = owner.api_version.split('/').next().unwrap_or_default();
        // Other owners belong to Kubernetes' own controllers.
        if owner.block_owner_deletion == Some(true) && group == "zeroscale.dev" {
            owners.insert((group.to_owned(), format!("{}s/finalizers", owner.kind.to_lowercase())));
        }
    }
    let given = rights("openshift")?.into_iter().filter(|right| right.resource.ends_with("/finalizers"));
    let given: BTreeSet<_> = given.map(|right| (right.group, right.resource)).collect();
    ensure!(owners == given, "owners are {owners:?}, and rights are for {given:?}");
    Ok(())
}

/// Takes workloads through everything that may happen to them.
pub(crate) async fn exercise(env: &TestEnv, record: &Record) -> anyhow::Result<()> {
    env.deploy(&Workload::new("adopt").replicas(1)).await?;
    let cpu = json!([{"type": "Resource",
        "resource": {"name": "cpu", "target": {"type": "AverageValue", "averageValue": "1"}}}]);
    let plain = Workload::new("plain").set("metrics", cpu).set("hosts", vec!["plain.example.com"]);
    env.create::<Deployment>(plain.deployment(&e2e::space::program()?)).await?;
    env.create::<ZeroScaler>(plain.set("services", json!([{"name": "plain", "create": true}])).scaler()).await?;
    env.until_served("plain").await?;
    env.create::<Deployment>(Workload::new("zs").deployment(&e2e::space::program()?)).await?;
    // A label creates one and removes it; a StatefulSet is scaled, although no controller runs its pods here.
    let mut labelled = Workload::new("labelled").deployment(&e2e::space::program()?);
    labelled["metadata"]["labels"] = json!({"zeroscale.dev/enabled": "true"});
    env.create::<Deployment>(labelled).await?;
    let mut set = Workload::new("set").deployment(&e2e::space::program()?);
    set["kind"] = json!("StatefulSet");
    set["spec"]["serviceName"] = json!("set");
    env.create::<StatefulSet>(set).await?;
    let target = json!({"kind": "StatefulSet", "name": "set"});
    let spec = json!({"target": target, "services": [{"name": "set", "create": true}], "scale": {"min": 1}});
    env.create::<ZeroScaler>(bare::zeroscaler("set", spec)).await?;
    let away = json!({"metadata": {"labels": {"zeroscale.dev/enabled": null}}});
    until_scaler(env, "labelled", "a ZeroScaler for a label", |_| true).await?;
    env.patch::<Deployment>("labelled", away).await?;
    env.until(SOON, "a StatefulSet to be scaled", async || {
        Ok(record.has_request("autoscaler", "patch", "statefulsets/scale")
            && record.has_request("autoscaler", "delete", "zeroscalers"))
    })
    .await?;
    let services = json!([{"name": "zs", "create": true}]);
    let spec = json!({"target": {"name": "zs"}, "services": services, "scale": {"window": "6s"}});
    env.create::<ZeroScaler>(bare::zeroscaler("zs", spec)).await?;
    for name in ["adopt", "plain", "zs"] {
        let load = env.load(Entry::Activator, name);
        env.until(SOON, "an answer", async || Ok(load.get("/").await?.status == 200)).await?;
    }
    finalizer_permissions_match_owners(env).await?;
    conflict(env, record, "zs").await?;
    let plain = Load::new(env.activator(), "plain.example.com");
    env.until(SOON, "an answer by its host", async || Ok(plain.get("/").await?.status == 200)).await?;
    // The workload becomes guarded, and then its policy gets another peer.
    let guard = |peer: Value| {
        json!({"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy", "metadata": {"name": "plain"},
            "spec": {"podSelector": {"matchLabels": {"app": "plain"}}, "ingress": [{"from": [peer]}]}})
    };
    env.create::<NetworkPolicy>(guard(json!({"podSelector": {}}))).await?;
    env.until(SOON, "a guard", async || Ok(record.has_request("autoscaler", "create", "networkpolicies"))).await?;
    env.patch::<NetworkPolicy>("plain", guard(json!({"namespaceSelector": {}}))).await?;
    env.until(SOON, "another guard", async || Ok(record.has_request("autoscaler", "update", "networkpolicies")))
        .await?;
    // Another window, another public Service, one more host.
    let edits = json!({"spec": {"scale": {"window": "7s"}, "services": [{"name": "renamed", "create": true}],
        "hosts": ["plain.example.com", "*.plain.example.com"]}});
    env.patch::<ZeroScaler>("plain", edits).await?;
    let is_gone = async || Ok(env.api::<Service>().get_opt("plain").await?.is_none());
    env.until(SOON, "the former public Service to go", is_gone).await?;
    // A replica ends, and claims its share when it is back; the deciding replica changes twice.
    env.cluster.drain_plane(PlaneId::Autoscaler(1)).await;
    // Otherwise it may resume its released leases and has nothing to claim.
    let leases: Api<Lease> = Api::namespaced(env.client.clone(), "zeroscale-system");
    env.until(SOON, "the other replica to have all leases", async || {
        let all = leases.list(&ListParams::default()).await?;
        let holders = all.iter().map(|lease| lease.spec.as_ref().and_then(|spec| spec.holder_identity.as_deref()));
        Ok(holders.into_iter().all(|holder| holder.is_some_and(|holder| !holder.is_empty())))
    })
    .await?;
    env.cluster.start_plane(PlaneId::Autoscaler(1))?;
    env.until(SOON, "a claim", async || Ok(record.has_request("autoscaler", "patch", "leases"))).await?;
    for name in ["adopt", "plain"] {
        env.until_asleep(name).await?;
    }
    for name in ["adopt", "plain", "zs"] {
        env.delete_scaler(name).await?;
    }
    env.until(SOON, "its hosts to be released", async || Ok(record.has_request("autoscaler", "delete", "configmaps")))
        .await?;
    env.until(SOON, "the guard to go", async || Ok(record.has_request("autoscaler", "delete", "networkpolicies")))
        .await?;
    contend(env, record).await
}
