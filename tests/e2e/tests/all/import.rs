//! Output of `kubectl zeroscale import` for other projects' manifests, applied to an API server that rejects unknown
//! fields.

use anyhow::{Context, ensure};
use cli::import::import;
use common_api::ZeroScaler;
use e2e::bare;
use kube::api::{DynamicObject, ListParams, Patch, PatchParams, ValidationDirective};
use kube::{Api, ResourceExt};

const MANIFESTS: &str = r#"
apiVersion: v1
kind: ConfigMap
metadata: {name: unrelated}
---
apiVersion: http.keda.sh/v1alpha1
kind: HTTPScaledObject
metadata: {name: off, labels: {team: a}, annotations: {autoscaling.keda.sh/paused-scale-in: "true"}}
spec: {host: a.example.com, scaleTargetRef: {deployment: off-app, service: off, port: 80}, replicas: {max: 0}}
---
apiVersion: http.keda.sh/v1beta1
kind: InterceptorRoute
metadata: {name: route}
spec:
  target: {service: route, port: 80}
  timeouts: {readiness: 10s, request: 60s, responseHeader: 30s}
  staticRoutes: [{rules: [{paths: [{value: /healthz, type: Prefix}]}], response: {statusCode: 200, body: OK}}]
---
apiVersion: keda.sh/v1alpha1
kind: ScaledObject
metadata: {name: route}
spec:
  scaleTargetRef: {name: route}
  idleReplicaCount: 0
  minReplicaCount: 2
  advanced: {horizontalPodAutoscalerConfig: {behavior: {scaleDown: {stabilizationWindowSeconds: 30, tolerance: 0.02}}}}
  triggers:
  - {type: external-push, metadata: {scalerAddress: "a:1", interceptorRoute: route}}
  - {type: cpu, metadata: {value: "60"}}
  - {type: memory, metricType: AverageValue, metadata: {value: 1Gi}}
  - {type: cron, metadata: {timezone: UTC, start: 0 8 * * 1-5, end: 0 18 * * 1-5, desiredReplicas: "4"}}
---
apiVersion: autoscaling/v2beta1
kind: HorizontalPodAutoscaler
metadata: {name: old}
spec:
  scaleTargetRef: {apiVersion: extensions/v1beta1, kind: Deployment, name: old}
  maxReplicas: 3
  metrics:
  - {type: Resource, resource: {name: cpu, targetAverageUtilization: 60}}
  - {type: External, external: {metricName: lag, metricSelector: {matchLabels: {a: b}}, targetValue: 0.5}}
---
apiVersion: autoscaling/v2
kind: HorizontalPodAutoscaler
metadata: {name: numbers}
spec:
  scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: numbers}
  maxReplicas: 3
  metrics: [{type: Pods, pods: {metric: {name: qps}, target: {type: AverageValue, averageValue: 10}}}]
  behavior: {scaleUp: {tolerance: 0.02, speed: 3, policies: [{type: Pods, value: 4, periodSeconds: 60}]}}
---
apiVersion: serving.knative.dev/v1
kind: Service
metadata: {name: hello, labels: {networking.knative.dev/visibility: cluster-local}}
spec:
  template:
    metadata: {annotations: {autoscaling.knative.dev/max-scale: "0", sidecar.istio.io/inject: "true"}}
    spec: {timeoutSeconds: 60, containers: [{image: hello, resources: {limits: {cpu: 1}}}]}
"#;

/// Goal: all output passes strict validation, and can be read back even if a quantity was written as a number.
#[tokio::test]
async fn imported_objects_pass_strict_validation() -> anyhow::Result<()> {
    let (_server, client) = bare::start("127.202.0.0/17").await?;
    bare::define_resources(&client).await?;
    let params = PatchParams { field_validation: Some(ValidationDirective::Strict), ..PatchParams::apply("import") };
    // The first object is served a moment after the definition was created.
    let first = bare::zeroscaler("first", serde_json::json!({"target": {"name": "first"}}));
    bare::create(&client, Some("default"), first).await?;
    for imported in import(&[("f.yaml".to_owned(), MANIFESTS.to_owned())])? {
        for object in imported.objects {
            let object: DynamicObject = serde_json::from_value(object)?;
            let api = bare::api_of(&client, Some("default"), &object)?;
            let applied = api.patch(&object.name_any(), &params, &Patch::Apply(&object)).await;
            applied.with_context(|| format!("{}: {object:?}", imported.source))?;
        }
        let rejected = imported.notes.iter().any(|(_, why)| why.contains("rejected"));
        ensure!(!rejected, "{}: {:?}", imported.source, imported.notes);
    }
    let all = Api::<ZeroScaler>::namespaced(client, "default").list(&ListParams::default()).await?;
    let names: Vec<_> = all.iter().map(ResourceExt::name_any).collect();
    assert_eq!(names, ["first", "hello", "numbers", "off", "old", "route"]);
    let numbers = &all.items[2].spec;
    let tolerance = numbers.behavior.as_ref().and_then(|b| b.scale_up.as_ref()?.tolerance.clone());
    let average = numbers.metrics[0].pods.as_ref().and_then(|pods| pods.target.average_value.clone());
    assert_eq!((tolerance.map(|q| q.0), average.map(|q| q.0)), (Some("0.02".to_owned()), Some("10".to_owned())));
    Ok(())
}
