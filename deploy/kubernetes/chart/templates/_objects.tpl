{{/* Formats a value as text, with numbers as written. */}}
{{- define "zeroscale.text" -}}
{{- if and (kindIs "float64" .) (eq (floor .) .) -}}{{ printf "%.0f" . }}{{- else -}}{{ toString . }}{{- end -}}
{{- end -}}

{{/* Returns all objects in files that match .glob, as a YAML map with the list `items`. */}}
{{- define "zeroscale.read" -}}
{{- $items := list -}}
{{- range $path, $_ := .root.Files.Glob .glob -}}
{{- if not (hasSuffix "kustomization.yaml" $path) -}}
{{- range splitList "\n---\n" ($.root.Files.Get $path) -}}
{{- $object := fromYaml . -}}
{{- if $object.kind -}}{{- $items = append $items $object -}}{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- toYaml (dict "items" $items) -}}
{{- end -}}

{{/* Returns the values of the Deployment .name. */}}
{{- define "zeroscale.values" -}}
{{- toYaml (ternary .root.Values.hpa (get .root.Values .name) (eq .name "autoscaler-hpa")) -}}
{{- end -}}

{{/* Returns additional environment variables of a Deployment: container entries by name. */}}
{{- define "zeroscale.env" -}}
{{- $root := .root -}}
{{- $env := dict -}}
{{- if eq $root.Values.mode "standalone" -}}
{{- if and $root.Values.namespaces (ne .name "autoscaler-hpa") -}}
{{- $_ := set $env "ZEROSCALE_NAMESPACES" (dict "value" (join "," $root.Values.namespaces)) -}}
{{- end -}}
{{- if and $root.Values.stats.tlsSecret (ne .name "autoscaler-hpa") -}}
{{- $folder := "/var/run/secrets/zeroscale.dev/stat-tls" -}}
{{- $_ := set $env "ZEROSCALE_STAT_TLS_CA_FILE" (dict "value" (printf "%s/ca.crt" $folder)) -}}
{{- if eq .name "autoscaler" -}}
{{- $_ := set $env "ZEROSCALE_STAT_TLS_CERT" (dict "value" (printf "%s/tls.crt" $folder)) -}}
{{- $_ := set $env "ZEROSCALE_STAT_TLS_KEY" (dict "value" (printf "%s/tls.key" $folder)) -}}
{{- else if $root.Values.stats.activatorTlsSecret -}}
{{- $own := "/var/run/secrets/zeroscale.dev/activator-tls" -}}
{{- $_ := set $env "ZEROSCALE_STAT_TLS_CERT" (dict "value" (printf "%s/tls.crt" $own)) -}}
{{- $_ := set $env "ZEROSCALE_STAT_TLS_KEY" (dict "value" (printf "%s/tls.key" $own)) -}}
{{- end -}}
{{- end -}}
{{- if and $root.Values.dashboard.enabled (eq .name "autoscaler") -}}
{{- $_ := set $env "ZEROSCALE_DASHBOARD_ADDRESS" (dict "value" "0.0.0.0:8090") -}}
{{- $_ := set $env "ZEROSCALE_DASHBOARD_TOKEN_FILE" (dict "value" "/var/run/secrets/zeroscale.dev/dashboard/token") -}}
{{- end -}}
{{- end -}}
{{- range $name, $value := .own.env -}}
{{- $_ := set $env $name (dict "value" (include "zeroscale.text" $value)) -}}
{{- end -}}
{{- toYaml $env -}}
{{- end -}}

{{/* Returns the image of a program. */}}
{{- define "zeroscale.image" -}}
{{- $registry := required "images.registry: must say where the images are, such as registry.example.com/zeroscale: there is no public one" .root.Values.images.registry -}}
{{- printf "%s/%s:%s" (trimSuffix "/" $registry) .name (default .root.Chart.AppVersion .root.Values.images.tag) -}}
{{- end -}}

{{/* Applies the values to a Deployment. */}}
{{- define "zeroscale.deployment" -}}
{{- $root := .root -}}
{{- $object := .object -}}
{{- $name := $object.metadata.name -}}
{{- $own := include "zeroscale.values" (dict "root" $root "name" $name) | fromYaml -}}
{{- $pod := $object.spec.template.spec -}}
{{- $container := first $pod.containers -}}
{{- /* Set replicas only if the manifest has them: those of activators and of Knative have none. */ -}}
{{- $isFixed := and (eq $root.Values.mode "standalone") (eq $name "activator") (not $own.autoscaling.enabled) -}}
{{- if or (hasKey $object.spec "replicas") $isFixed -}}
{{- $_ := set $object.spec "replicas" (int $own.replicas) -}}
{{- end -}}
{{- $_ := set $container "image" (include "zeroscale.image" (dict "root" $root "name" $name)) -}}
{{- with $root.Values.images.pullPolicy -}}{{- $_ := set $container "imagePullPolicy" . -}}{{- end -}}
{{- with $root.Values.images.pullSecrets -}}
{{- $secrets := list -}}
{{- range . -}}{{- $secrets = append $secrets (dict "name" .) -}}{{- end -}}
{{- $_ := set $pod "imagePullSecrets" $secrets -}}
{{- end -}}
{{- $more := include "zeroscale.env" (dict "root" $root "name" $name "own" $own) | fromYaml -}}
{{- $env := list -}}
{{- range $container.env -}}
{{- /* If no tokens are required, activators get no token: with a token and no audience, they do not share hard limits. */ -}}
{{- $ofTokens := or (eq .name "ZEROSCALE_STAT_AUDIENCE") (and (eq .name "ZEROSCALE_STAT_TOKEN_FILE") (eq $name "activator")) -}}
{{- $unwanted := and $ofTokens (or $root.Values.namespaces (not $root.Values.stats.tokens)) -}}
{{- if not (or $unwanted (hasKey $more .name)) -}}{{- $env = append $env . -}}{{- end -}}
{{- end -}}
{{- range $variable, $entry := $more -}}{{- $env = append $env (merge (dict "name" $variable) $entry) -}}{{- end -}}
{{- $_ := set $container "env" (concat $env $own.extraEnv) -}}
{{- with $own.resources -}}{{- $_ := set $container "resources" (mergeOverwrite (deepCopy $container.resources) .) -}}{{- end -}}
{{- if and $root.Values.stats.tlsSecret (eq $root.Values.mode "standalone") (ne $name "autoscaler-hpa") -}}
{{- $mount := dict "name" "stat-tls" "mountPath" "/var/run/secrets/zeroscale.dev/stat-tls" "readOnly" true -}}
{{- $_ := set $container "volumeMounts" (append $container.volumeMounts $mount) -}}
{{- /* An activator only gets ca.crt of the Secret. */ -}}
{{- $secret := dict "secretName" $root.Values.stats.tlsSecret -}}
{{- if eq $name "activator" -}}{{- $_ := set $secret "items" (list (dict "key" "ca.crt" "path" "ca.crt")) -}}{{- end -}}
{{- $_ := set $pod "volumes" (append $pod.volumes (dict "name" "stat-tls" "secret" $secret)) -}}
{{- if and $root.Values.stats.activatorTlsSecret (eq $name "activator") -}}
{{- $mount := dict "name" "activator-tls" "mountPath" "/var/run/secrets/zeroscale.dev/activator-tls" "readOnly" true -}}
{{- $_ := set $container "volumeMounts" (append $container.volumeMounts $mount) -}}
{{- $secret := dict "secretName" $root.Values.stats.activatorTlsSecret -}}
{{- $_ := set $pod "volumes" (append $pod.volumes (dict "name" "activator-tls" "secret" $secret)) -}}
{{- end -}}
{{- end -}}
{{- if and $root.Values.dashboard.enabled (eq $root.Values.mode "standalone") (eq $name "autoscaler") -}}
{{- $secret := required "dashboard.tokenSecret: must name a Secret with the key `token`, such as one of `kubectl create secret generic zeroscale-dashboard --from-literal=token=...`" $root.Values.dashboard.tokenSecret -}}
{{- $mount := dict "name" "dashboard" "mountPath" "/var/run/secrets/zeroscale.dev/dashboard" "readOnly" true -}}
{{- $_ := set $container "volumeMounts" (append $container.volumeMounts $mount) -}}
{{- $_ := set $pod "volumes" (append $pod.volumes (dict "name" "dashboard" "secret" (dict "secretName" $secret))) -}}
{{- end -}}
{{- with $own.extraVolumes -}}{{- $_ := set $pod "volumes" (concat (default list $pod.volumes) .) -}}{{- end -}}
{{- with $own.extraVolumeMounts -}}{{- $_ := set $container "volumeMounts" (concat (default list $container.volumeMounts) .) -}}{{- end -}}
{{- with $own.priorityClassName -}}{{- $_ := set $pod "priorityClassName" . -}}{{- end -}}
{{- with $own.updateStrategy -}}{{- $_ := set $object.spec "strategy" . -}}{{- end -}}
{{- /* Labels in the selector do not change. */ -}}
{{- with $own.podLabels -}}{{- $_ := set $object.spec.template.metadata "labels" (merge (deepCopy $object.spec.template.metadata.labels) .) -}}{{- end -}}
{{- with $own.labels -}}{{- $_ := set $object.metadata "labels" (merge (deepCopy $object.metadata.labels) .) -}}{{- end -}}
{{- with $own.annotations -}}{{- $_ := set $object.metadata "annotations" (merge (default dict $object.metadata.annotations) .) -}}{{- end -}}
{{- with $own.podSpec -}}{{- $_ := set $object.spec.template "spec" (mergeOverwrite $pod .) -}}{{- end -}}
{{- with $own.podAnnotations -}}{{- $_ := set $object.spec.template.metadata "annotations" . -}}{{- end -}}
{{- end -}}

{{/*
Sets the port numbers of workloads in the activators' NetworkPolicy: the range and, after a change, the previous range, which
clients use until the workloads have moved. The previous range is the first one in the installed policy, so the next upgrade
removes it. Without a cluster, `helm template` finds no installed policy.
*/}}
{{- define "zeroscale.ranges" -}}
{{- $root := .root -}}
{{- $policy := .policy -}}
{{- $inForce := lookup "networking.k8s.io/v1" "NetworkPolicy" $policy.metadata.namespace $policy.metadata.name -}}
{{- $former := dict -}}
{{- range dig "spec" "ingress" list $inForce -}}{{- range .ports -}}
{{- if and (hasKey . "endPort") (not $former) -}}{{- $former = . -}}{{- end -}}
{{- end -}}{{- end -}}
{{- range $rule := $policy.spec.ingress -}}
{{- $ports := list -}}
{{- range $port := $rule.ports -}}
{{- $ports = append $ports $port -}}
{{- if hasKey $port "endPort" -}}
{{- with $root.Values.config.ports.range -}}
{{- $ends := splitList "-" . -}}
{{- $_ := set $port "port" (index $ends 0 | int) -}}{{- $_ := set $port "endPort" (index $ends 1 | int) -}}
{{- end -}}
{{- if and $former (or (ne (int $former.port) (int $port.port)) (ne (int $former.endPort) (int $port.endPort))) -}}
{{- $ports = append $ports (dict "protocol" "TCP" "port" (int $former.port) "endPort" (int $former.endPort)) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- $_ := set $rule "ports" $ports -}}
{{- end -}}
{{- end -}}

{{/* Fails if guarded numbers are in a range that the activators' policy opens: the new range, or the previous one. */}}
{{- define "zeroscale.guarded" -}}
{{- $guarded := default "10000-19999" .config.data.guarded -}}
{{- $open := list (default "20000-29999" .config.data.range) -}}
{{- $inForce := lookup "networking.k8s.io/v1" "NetworkPolicy" .config.metadata.namespace "activator" -}}
{{- range dig "spec" "ingress" list $inForce -}}{{- range .ports -}}
{{- if hasKey . "endPort" -}}{{- $open = append $open (printf "%d-%d" (int .port) (int .endPort)) -}}{{- end -}}
{{- end -}}{{- end -}}
{{- if ne $guarded "off" -}}
{{- $ends := splitList "-" $guarded -}}
{{- range $open -}}
{{- $other := splitList "-" . -}}
{{- if and (le (index $ends 0 | int) (index $other 1 | int)) (le (index $other 0 | int) (index $ends 1 | int)) -}}
{{- fail (printf "config.ports.guarded: %s must share no number with %s, which the NetworkPolicy of the activators opens: set another range, or off" $guarded .) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* Writes the objects in .items with the values of the release, each as a document. */}}
{{- define "zeroscale.write" -}}
{{- $root := .root -}}
{{- $isSome := and (eq $root.Values.mode "standalone") (not (empty $root.Values.namespaces)) -}}
{{- range $object := .items -}}
{{- $kind := $object.kind -}}
{{- $isWide := has $kind (list "ClusterRole" "ClusterRoleBinding") -}}
{{- $isLeftOut := or (eq $kind "Namespace") (and (eq $kind "NetworkPolicy") (not $root.Values.policies)) (and $isWide $isSome) -}}
{{- if eq $kind "PodDisruptionBudget" -}}
{{- $own := include "zeroscale.values" (dict "root" $root "name" $object.metadata.name) | fromYaml -}}
{{- $isLeftOut = not $own.podDisruptionBudget.enabled -}}
{{- $most := $own.podDisruptionBudget.maxUnavailable -}}
{{- $_ := set $object.spec "maxUnavailable" (kindIs "string" $most | ternary $most (int $most)) -}}
{{- else if and (eq $kind "HorizontalPodAutoscaler") (not $root.Values.activator.autoscaling.enabled) -}}
{{- $isLeftOut = true -}}
{{- end -}}
{{- if not $isLeftOut -}}
{{- if hasKey $object.metadata "namespace" -}}
{{- $_ := set $object.metadata "namespace" (default $root.Release.Namespace $.namespace) -}}
{{- end -}}
{{- with $root.Values.labels -}}{{- $_ := set $object.metadata "labels" (merge (default dict $object.metadata.labels) .) -}}{{- end -}}
{{- with $root.Values.annotations -}}{{- $_ := set $object.metadata "annotations" (merge (default dict $object.metadata.annotations) .) -}}{{- end -}}
{{- range $object.subjects -}}{{- $_ := set . "namespace" $root.Release.Namespace -}}{{- end -}}
{{- if eq $kind "Deployment" -}}
{{- include "zeroscale.deployment" (dict "root" $root "object" $object) -}}
{{- else if and (eq $kind "HorizontalPodAutoscaler") (eq $object.metadata.name "activator") -}}
{{- $aim := $root.Values.activator.autoscaling -}}
{{- $_ := set $object.spec "minReplicas" (int $aim.minReplicas) -}}
{{- $_ := set $object.spec "maxReplicas" (int $aim.maxReplicas) -}}
{{- $_ := set (first $object.spec.metrics).resource.target "averageUtilization" (int $aim.averageUtilization) -}}
{{- else if and (eq $kind "NetworkPolicy") (eq $object.metadata.name "activator") -}}
{{- include "zeroscale.ranges" (dict "root" $root "policy" $object) -}}
{{- else if and (eq $kind "NetworkPolicy") (eq $object.metadata.name "autoscaler") $root.Values.dashboard.enabled -}}
{{- $rule := dict "ports" (list (dict "protocol" "TCP" "port" 8090)) -}}
{{- $_ := set $object.spec "ingress" (append $object.spec.ingress $rule) -}}
{{- else if has $kind (list "PodMonitor" "PrometheusRule") -}}
{{- $_ := set $object.metadata "labels" (mergeOverwrite $object.metadata.labels $root.Values.monitoring.labels) -}}
{{- /* In mode knative, Knative's namespace is the release's. */ -}}
{{- if hasKey $object.spec "namespaceSelector" -}}
{{- $_ := set $object.spec "namespaceSelector" (dict "matchNames" (list $root.Release.Namespace)) -}}
{{- end -}}
{{- range $group := $object.spec.groups -}}{{- range $rule := $group.rules -}}
{{- $_ := set $rule.annotations "runbook_url" (printf "%s#%s" $root.Values.monitoring.runbooks (lower $rule.alert)) -}}
{{- if eq $root.Values.mode "knative" -}}
{{- $_ := set $rule "expr" (replace "\"knative-serving\"" (quote $root.Release.Namespace) $rule.expr) -}}
{{- end -}}
{{- end -}}{{- end -}}
{{- else if eq $kind "ConfigMap" -}}
{{- /* Without the policy that closes guarded numbers none guards a workload. */ -}}
{{- if and (eq $object.metadata.name "config-ports") (not $root.Values.policies) -}}{{- $_ := set $object.data "guarded" "off" -}}{{- end -}}
{{- range $key, $value := get $root.Values.config (trimPrefix "config-" $object.metadata.name) -}}
{{- $_ := set $object.data $key (include "zeroscale.text" $value) -}}
{{- end -}}
{{- if eq $object.metadata.name "config-ports" -}}{{- include "zeroscale.guarded" (dict "root" $root "config" $object) -}}{{- end -}}
{{- end }}
---
{{ toYaml $object }}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* Writes the objects in files that match .glob with the values of the release; in .namespace, if it is set. */}}
{{- define "zeroscale.files" -}}
{{- $items := (include "zeroscale.read" . | fromYaml).items -}}
{{- include "zeroscale.write" (dict "root" .root "items" $items "namespace" .namespace) -}}
{{- end -}}

{{/* Reports whether to create objects of .kind, a kind of the Prometheus Operator: by .value or, for auto, by the cluster. */}}
{{- define "zeroscale.isWanted" -}}
{{- if or (eq (toString .value) "true") (and (eq (toString .value) "auto") (.root.Capabilities.APIVersions.Has (printf "monitoring.coreos.com/v1/%s" .kind))) -}}
true
{{- end -}}
{{- end -}}
