{{- define "ingero.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" }}
{{- end }}

{{- define "ingero.fullname" -}}
{{- if .Values.fullnameOverride }}
{{- .Values.fullnameOverride | trunc 52 | trimSuffix "-" }}
{{- else if contains (include "ingero.name" .) .Release.Name }}
{{- .Release.Name | trunc 52 | trimSuffix "-" }}
{{- else }}
{{- printf "%s-%s" .Release.Name (include "ingero.name" .) | trunc 52 | trimSuffix "-" }}
{{- end }}
{{- end }}

{{- /* Cluster-scoped names carry the namespace unless it is that of the default installation. */}}
{{- define "ingero.clusterName" -}}
{{- if eq .Release.Namespace (include "ingero.fullname" .) -}}
{{- include "ingero.fullname" . }}
{{- else -}}
{{- printf "%s-%s" (include "ingero.fullname" .) .Release.Namespace | trunc 63 | trimSuffix "-" }}
{{- end }}
{{- end }}

{{- define "ingero.selectorLabels" -}}
app.kubernetes.io/name: {{ include "ingero.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "ingero.labels" -}}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-" }}
{{ include "ingero.selectorLabels" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- with .Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- define "ingero.serviceAccountName" -}}
{{- if (.Values.serviceAccount).create -}}
{{- default (include "ingero.fullname" .) (.Values.serviceAccount).name }}
{{- else -}}
{{- default "default" (.Values.serviceAccount).name }}
{{- end }}
{{- end }}

{{- define "ingero.image" -}}
{{- with .Values.image -}}
{{- if .digest -}}
{{- printf "%s@%s" .repository .digest }}
{{- else -}}
{{- printf "%s:%s" .repository (.tag | default $.Chart.AppVersion) }}
{{- end }}
{{- end }}
{{- end }}

{{- /* The settings of the ConfigMap: .Values.config, and the port and the folder of recordings where they are
not the agent's defaults. */}}
{{- define "ingero.config" -}}
{{- $config := deepCopy (.Values.config | default dict) }}
{{- $port := int .Values.port }}
{{- if hasKey $config "listen_address" }}
{{- if not (hasSuffix (printf ":%d" $port) $config.listen_address) }}
{{- fail (printf "config.listen_address is %s, but port is %d: probes and monitors would not find the agent; set both" $config.listen_address $port) }}
{{- end }}
{{- else if ne $port 9090 }}
{{- $_ := set $config "listen_address" (printf ":%d" $port) }}
{{- end }}
{{- $recordings := deepCopy (default (dict) $config.recordings) }}
{{- $hostPath := (.Values.recordings).hostPath }}
{{- if not (.Values.recordings).enabled }}
{{- if not (has (toString (default "0" $recordings.budget)) (list "0")) }}
{{- fail (printf "config.recordings.budget is %v, but recordings.enabled is false: there is no folder to write to" $recordings.budget) }}
{{- end }}
{{- $_ := set $recordings "budget" "0" }}
{{- else if hasKey $recordings "directory" }}
{{- if not (hasPrefix (printf "%s/" $hostPath) (printf "%s/" $recordings.directory)) }}
{{- fail (printf "config.recordings.directory is %s, which is not in recordings.hostPath %s: nothing could be written there" $recordings.directory $hostPath) }}
{{- end }}
{{- else if ne $hostPath "/var/lib/ingero/recordings" }}
{{- $_ := set $recordings "directory" $hostPath }}
{{- end }}
{{- if $recordings }}
{{- $_ := set $config "recordings" $recordings }}
{{- end }}
{{- if $config }}
{{- toYaml $config }}
{{- end }}
{{- end }}

{{- define "ingero.affinity" -}}
{{- $affinity := dict }}
{{- if .Values.gpuNodesOnly }}
{{- $present := dict "matchExpressions" (list (dict "key" "nvidia.com/gpu.present" "operator" "In" "values" (list "true"))) }}
{{- $count := dict "matchExpressions" (list (dict "key" "nvidia.com/gpu.count" "operator" "Exists")) }}
{{- $affinity = dict "nodeAffinity" (dict "requiredDuringSchedulingIgnoredDuringExecution" (dict "nodeSelectorTerms" (list $present $count))) }}
{{- end }}
{{- if (.Values.affinity).nodeAffinity }}
{{- $_ := unset $affinity "nodeAffinity" }}
{{- end }}
{{- $affinity = merge (deepCopy (.Values.affinity | default dict)) $affinity }}
{{- if $affinity }}
{{- toYaml $affinity }}
{{- end }}
{{- end }}

{{- /* Where a pod of ours may run: the agents, and the pod of `helm test`, whose image is theirs. */}}
{{- define "ingero.scheduling" -}}
{{- with .Values.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with include "ingero.affinity" . }}
affinity:
  {{- . | nindent 2 }}
{{- end }}
{{- with .Values.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.imagePullSecrets }}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{- define "ingero.securityContext" -}}
{{- $context := .Values.securityContext -}}
{{- if $context.privileged -}}
privileged: true
{{- else -}}
privileged: false
{{- /* The API server refuses false beside SYS_ADMIN. */}}
{{- if not (has "SYS_ADMIN" ($context.capabilities | default list)) }}
allowPrivilegeEscalation: false
{{- end }}
capabilities:
  drop: [ALL]
  {{- with $context.capabilities }}
  add:
    {{- toYaml . | nindent 4 }}
  {{- end }}
{{- if and $context.appArmorProfile (semverCompare ">=1.30.0-0" .Capabilities.KubeVersion.Version) }}
appArmorProfile:
  {{- toYaml $context.appArmorProfile | nindent 2 }}
{{- end }}
{{- with $context.seccompProfile }}
seccompProfile:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}
readOnlyRootFilesystem: true
# Capabilities are in force for root only, unless the file has them.
runAsUser: 0
runAsGroup: 0
{{- end }}

{{- /* Whether objects of the Prometheus Operator are rendered: (list $ .Values.podMonitor) */}}
{{- define "ingero.operatorHas" -}}
{{- $root := index . 0 }}{{ $values := index . 1 | default dict }}
{{- if and $values.enabled (or $values.force ($root.Capabilities.APIVersions.Has "monitoring.coreos.com/v1")) -}}
true
{{- end }}
{{- end }}
