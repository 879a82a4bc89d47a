{{/* One engine: its values laid over the defaults. Takes a list: root, the engine's own values. */}}
{{- define "penstock.engine" -}}
{{- mergeOverwrite (deepCopy (index . 0).Values.engineDefaults) (index . 1) | toYaml -}}
{{- end }}

{{- define "penstock.image" -}}
{{ .repository }}:{{ .tag }}
{{- end }}

{{- define "penstock.podSecurity" -}}
{runAsNonRoot: true, runAsUser: 65532, runAsGroup: 65532, fsGroup: 65532, seccompProfile: {type: RuntimeDefault}}
{{- end }}

{{- define "penstock.containerSecurity" -}}
{allowPrivilegeEscalation: false, readOnlyRootFilesystem: true, capabilities: {drop: [ALL]}}
{{- end }}

{{/* Node selector and tolerations of a pod, where there are any. */}}
{{- define "penstock.placement" -}}
{{- with .nodeSelector }}
nodeSelector: {{ toJson . }}
{{- end }}
{{- with .tolerations }}
tolerations: {{ toJson . }}
{{- end }}
{{- end }}

{{/* Share of the permits of an engine's deployments that are out, in PromQL; absent while none is ready. */}}
{{- define "penstock.occupancy" -}}
sum(penstock_in_flight{deployment=~"{{ . }}-[0-9]+"})
  / (sum(penstock_concurrency_limit{deployment=~"{{ . }}-[0-9]+"}
      * on(instance, deployment) penstock_deployment_ready{deployment=~"{{ . }}-[0-9]+"}) > 0)
{{- end }}

{{/* Number of an engine's deployments that are ready, as the best-informed gateway sees it, in PromQL. */}}
{{- define "penstock.ready" -}}
max(sum by (instance) (penstock_deployment_ready{deployment=~"{{ . }}-[0-9]+"}))
{{- end }}

{{/* Gateway that a route hangs on. */}}
{{- define "penstock.parent" -}}
{name: {{ .parent.name }}{{ with .parent.namespace }}, namespace: {{ . }}{{ end }}}
{{- end }}

{{/* Pod of the Ray cluster. Takes a list: root, container name, values of the group. */}}
{{- define "penstock.rayPod" -}}
{{- $root := index . 0 }}{{ $name := index . 1 }}{{ $group := index . 2 -}}
metadata:
  labels: {app.kubernetes.io/name: penstock-engine, app.kubernetes.io/part-of: penstock}
spec:
  {{- if ne $name "ray-head" }}
  # The head's account is KubeRay's: its autoscaler changes the number of pods.
  serviceAccountName: penstock
  automountServiceAccountToken: false
  {{- end }}
  terminationGracePeriodSeconds: {{ add $root.Values.ray.drainSeconds 15 }}
  securityContext: {{ include "penstock.podSecurity" $root }}
  {{- with include "penstock.placement" $group | trim }}
  {{- nindent 2 . }}
  {{- end }}
  containers:
    - name: {{ $name }}
      image: {{ include "penstock.image" $root.Values.ray.image }}
      imagePullPolicy: {{ $root.Values.ray.image.pullPolicy }}
      resources: {{ toJson $group.resources }}
      securityContext: {{ include "penstock.containerSecurity" $root }}
      {{- if eq $name "ray-head" }}
      ports: [{name: gcs, containerPort: 6379}, {name: dashboard, containerPort: 8265}, {name: serve, containerPort: 8000}]
      {{- else }}
      # Ray's own stop: the cluster learns that the node goes before the pod is gone.
      lifecycle: {preStop: {exec: {command: [ray, stop, --grace-period, {{ $root.Values.ray.drainSeconds | quote }}]}}}
      {{- end }}
      volumeMounts:
        - {name: runtime, mountPath: /var/lib/penstock}
        - {name: tmp, mountPath: /tmp}
        - {name: shared-memory, mountPath: /dev/shm}
  volumes:
    - {name: runtime, emptyDir: {}}
    - {name: tmp, emptyDir: {}}
    - {name: shared-memory, emptyDir: {medium: Memory, sizeLimit: 1Gi}}
{{- end }}
