package parity

// requests are to the node itself: who asks, the method, the path with its query, and headers. HEALTH stands for the
// port of /healthz, WS for the administrator with a WebSocket of that protocol, PODUID for the UID of the pod user.
const requests = `
admin GET /pods
admin GET /pods/
admin HEAD /pods
admin POST /pods
admin DELETE /pods
admin OPTIONS /pods
admin GET /runningpods
admin GET /runningpods/
admin POST /runningpods/
admin GET /configz
admin GET /configz/
admin POST /configz
admin GET /healthz
admin POST /healthz
admin HEAD /healthz
admin GET /healthz/
admin GET /healthz/ping
admin GET /healthz/log
admin GET /healthz/syncloop
admin GET /healthz/device-plugin
admin GET /healthz/nothing
admin GET /healthz?verbose
admin GET /healthz?verbose&exclude=syncloop
admin GET /healthz?exclude=nothing
admin GET /livez
admin GET /readyz
admin GET /
admin GET /nothing
admin GET //pods
admin GET /logs/../pods
admin GET /stats
admin GET /stats/
admin GET /stats/summary
admin GET /stats/summary/
admin HEAD /stats/summary
admin POST /stats/summary
admin PUT /stats/summary
admin GET /stats/summary?only_cpu_and_memory=maybe
admin GET /stats/container
admin GET /stats/NAMESPACE/user/app
admin GET /spec/
admin GET /metrics
admin POST /metrics
admin HEAD /metrics
admin GET /metrics/
admin GET /metrics/cadvisor
admin GET /metrics/cadvisor/
admin GET /metrics/resource
admin GET /metrics/resource/v1alpha1
admin GET /metrics/probes
admin GET /metrics/slis
admin GET /metrics/nothing
admin GET /metrics Accept=application/openmetrics-text;version=1.0.0
admin GET /metrics/cadvisor Accept=application/openmetrics-text;version=1.0.0
admin GET /metrics/resource Accept=application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited
admin GET /metrics Accept=text/plain Accept-Encoding=gzip
admin GET /metrics/cadvisor Accept-Encoding=gzip
admin GET /pods Accept-Encoding=gzip
admin GET /logs
admin GET /logs/
admin GET /logs/no-such-file
admin GET /logs/..
admin GET /logs/%2e%2e/etc/passwd
admin POST /logs/
admin GET /logs/?query=kubelet
admin GET /debug/pprof
admin GET /debug/pprof/
admin GET /debug/pprof/heap?debug=1
admin GET /debug/pprof/nothing
admin GET /debug/pprof/profile?seconds=1
admin GET /debug/pprof/symbol
admin POST /debug/pprof/symbol
admin GET /debug/flags/v
admin PUT /debug/flags/v
admin GET /statusz
admin GET /flagz
admin GET /containerLogs
admin GET /containerLogs/
admin GET /containerLogs/NAMESPACE
admin GET /containerLogs/NAMESPACE/user
admin GET /containerLogs/NAMESPACE/user/
admin GET /containerLogs/NAMESPACE/user/told
admin HEAD /containerLogs/NAMESPACE/user/told
admin POST /containerLogs/NAMESPACE/user/told
admin GET /containerLogs/NAMESPACE/user/told/
admin GET /containerLogs/NAMESPACE/user/told/more
admin GET /containerLogs/NAMESPACE/user/nothing
admin GET /containerLogs/NAMESPACE/nothing/told
admin GET /containerLogs/nothing/user/told
admin GET /containerLogs/NAMESPACE/user/other
admin GET /containerLogs/NAMESPACE/user/told?previous=true
admin GET /containerLogs/NAMESPACE/user/told?follow=true&tailLines=1&limitBytes=4
admin GET /containerLogs/NAMESPACE/user/told?tailLines=2
admin GET /containerLogs/NAMESPACE/user/told?tailLines=0
admin GET /containerLogs/NAMESPACE/user/told?tailLines=-1
admin GET /containerLogs/NAMESPACE/user/told?tailLines=many
admin GET /containerLogs/NAMESPACE/user/told?tailLines=
admin GET /containerLogs/NAMESPACE/user/told?tailLines=1&tailLines=2
admin GET /containerLogs/NAMESPACE/user/told?tailLines=99999999999999999999
admin GET /containerLogs/NAMESPACE/user/told?tail=1
admin GET /containerLogs/NAMESPACE/user/told?tail=all
admin GET /containerLogs/NAMESPACE/user/told?tail=all&tailLines=1
admin GET /containerLogs/NAMESPACE/user/told?tail=
admin GET /containerLogs/NAMESPACE/user/told?tail=some
admin GET /containerLogs/NAMESPACE/user/told?limitBytes=5
admin GET /containerLogs/NAMESPACE/user/told?limitBytes=0
admin GET /containerLogs/NAMESPACE/user/told?limitBytes=-1
admin GET /containerLogs/NAMESPACE/user/told?limitBytes=5&tailLines=1
admin GET /containerLogs/NAMESPACE/user/told?sinceSeconds=10000
admin GET /containerLogs/NAMESPACE/user/told?sinceSeconds=0
admin GET /containerLogs/NAMESPACE/user/told?sinceSeconds=-1
admin GET /containerLogs/NAMESPACE/user/told?sinceSeconds=1.5
admin GET /containerLogs/NAMESPACE/user/told?sinceSeconds=9223372036854775807
admin GET /containerLogs/NAMESPACE/user/told?sinceTime=2001-01-01T00:00:00Z
admin GET /containerLogs/NAMESPACE/user/told?sinceTime=2001-01-01T00:00:00.123456789%2B02:00
admin GET /containerLogs/NAMESPACE/user/told?sinceTime=2099-01-01T00:00:00Z
admin GET /containerLogs/NAMESPACE/user/told?sinceTime=yesterday
admin GET /containerLogs/NAMESPACE/user/told?sinceTime=
admin GET /containerLogs/NAMESPACE/user/told?sinceTime=null
admin GET /containerLogs/NAMESPACE/user/told?sinceTime=2001-01-01T00:00:00Z&sinceSeconds=5
admin GET /containerLogs/NAMESPACE/user/told?timestamps=true&tailLines=1
admin GET /containerLogs/NAMESPACE/user/told?timestamps=maybe&tailLines=1
admin GET /containerLogs/NAMESPACE/user/told?timestamps=0&tailLines=1
admin GET /containerLogs/NAMESPACE/user/told?timestamps&tailLines=1
admin GET /containerLogs/NAMESPACE/user/told?timestamps=FALSE&tailLines=1
admin GET /containerLogs/NAMESPACE/user/told?timestamps=false&timestamps=true&tailLines=1
admin GET /containerLogs/NAMESPACE/user/told?stream=Stdout
admin GET /containerLogs/NAMESPACE/user/told?stream=Stderr
admin GET /containerLogs/NAMESPACE/user/told?stream=All&tailLines=1
admin GET /containerLogs/NAMESPACE/user/told?stream=stdout
admin GET /containerLogs/NAMESPACE/user/told?stream=
admin GET /containerLogs/NAMESPACE/user/told?stream=Stdout&tailLines=1
admin GET /containerLogs/NAMESPACE/user/told?stream=Stdout&limitBytes=4
admin GET /containerLogs/NAMESPACE/user/told?container=other&insecureSkipTLSVerifyBackend=true&nothing=1&tailLines=1
admin GET /containerLogs/NAMESPACE/user/told?tailLines=%zz
admin GET /containerLogs/NAMESPACE/user/told?tailLines=1;limitBytes=1
admin GET /containerLogs/NAMESPACE/blank/app
admin GET /containerLogs/NAMESPACE/blank/app?previous=true
admin GET /containerLogs/NAMESPACE/blank/app?follow=true
admin GET /containerLogs/NAMESPACE/short/first
admin GET /containerLogs/NAMESPACE/short/app
admin GET /containerLogs/NAMESPACE/short/app?previous=true
admin GET /containerLogs/NAMESPACE/large/app
admin GET /containerLogs/NAMESPACE/again/app
admin GET /containerLogs/NAMESPACE/again/app?previous=true
admin GET /exec/NAMESPACE/user/app
admin GET /exec/NAMESPACE/user/app?command=true&output=1
admin POST /exec/NAMESPACE/user/app?command=true&output=1
admin PUT /exec/NAMESPACE/user/app?command=true&output=1
admin GET /exec/NAMESPACE/user/app?command=true&input=true
admin GET /exec/NAMESPACE/user/app?command=true&tty=1&error=1
admin GET /exec/NAMESPACE/user/app?output=1
admin GET /exec/NAMESPACE/user/nothing?command=true&output=1
admin GET /exec/NAMESPACE/nothing/app?command=true&output=1
admin GET /exec/NAMESPACE/blank/app?command=true&output=1
admin GET /exec/NAMESPACE/short/app?command=true&output=1
admin GET /exec/NAMESPACE/short/first?command=true&output=1
admin GET /exec/NAMESPACE/user/no-such-uid/app?command=true&output=1
admin GET /exec/NAMESPACE/user/PODUID/app?command=true&output=1
admin GET /exec/NAMESPACE/user
admin GET /exec/
admin GET /exec
admin POST /exec/NAMESPACE/user/app?command=true&output=1 Connection=Upgrade Upgrade=SPDY/3.1
admin POST /exec/NAMESPACE/user/app?command=true&output=1 Connection=Upgrade Upgrade=SPDY/3.1 X-Stream-Protocol-Version=v4.channel.k8s.io
admin POST /exec/NAMESPACE/user/app?command=true&output=1 Connection=Upgrade Upgrade=SPDY/3.1 X-Stream-Protocol-Version=v9.channel.k8s.io
admin POST /exec/NAMESPACE/user/app?command=true&output=1 Connection=Upgrade Upgrade=nothing
WS v4.channel.k8s.io /exec/NAMESPACE/user/app?command=true&output=1
WS v5.channel.k8s.io /exec/NAMESPACE/user/app?command=true&output=1
WS v9.channel.k8s.io /exec/NAMESPACE/user/app?command=true&output=1
WS channel.k8s.io /exec/NAMESPACE/user/app?command=true&output=1
WS base64.channel.k8s.io /exec/NAMESPACE/user/app?command=true&output=1
WS v5.channel.k8s.io /exec/NAMESPACE/user/nothing?command=true&output=1
WS v5.channel.k8s.io /attach/NAMESPACE/user/app?output=1
WS v4.channel.k8s.io /attach/NAMESPACE/user/app?output=1
WS portforward.k8s.io /portForward/NAMESPACE/user?port=80
WS v4.channel.k8s.io /portForward/NAMESPACE/user?port=80
WS v4.channel.k8s.io /portForward/NAMESPACE/user
WS v4.channel.k8s.io /portForward/NAMESPACE/user?port=
WS v4.channel.k8s.io /portForward/NAMESPACE/user?port=0
WS v4.channel.k8s.io /portForward/NAMESPACE/user?port=80,x
WS v4.channel.k8s.io /portForward/NAMESPACE/user?port=70000
WS SPDY/3.1+portforward.k8s.io /portForward/NAMESPACE/user
admin GET /attach/NAMESPACE/user/app
admin GET /attach/NAMESPACE/user/app?output=1
admin POST /attach/NAMESPACE/user/app?output=1
admin GET /attach/NAMESPACE/user/nothing?output=1
admin GET /attach/NAMESPACE/nothing/app?output=1
admin GET /attach/NAMESPACE/blank/app?output=1
admin GET /attach/NAMESPACE/short/app?output=1
admin GET /attach/NAMESPACE/user/no-such-uid/app?output=1
admin GET /portForward/NAMESPACE/user
admin POST /portForward/NAMESPACE/user
admin GET /portForward/NAMESPACE/nothing
admin GET /portForward/NAMESPACE/short
admin GET /portForward/NAMESPACE/blank
admin GET /portForward/NAMESPACE/large
admin GET /portForward/NAMESPACE/user/no-such-uid
admin GET /portForward/NAMESPACE
admin GET /run/NAMESPACE/user/app?cmd=true
admin POST /run/NAMESPACE/user/app?cmd=echo%20a%20b
admin POST /run/NAMESPACE/user/app?cmd=false
admin POST /run/NAMESPACE/user/app?cmd=no-such-command
admin POST /run/NAMESPACE/user/app?cmd=ls%20/nothing
admin POST /run/NAMESPACE/user/app
admin POST /run/NAMESPACE/user/nothing?cmd=true
admin POST /run/NAMESPACE/nothing/app?cmd=true
admin POST /run/NAMESPACE/user/no-such-uid/app?cmd=true
admin POST /run/NAMESPACE/user/PODUID/app?cmd=true
admin POST /run/NAMESPACE/blank/app?cmd=true
admin POST /run/NAMESPACE/short/app?cmd=true
admin GET /checkpoint/NAMESPACE/user/app
admin POST /checkpoint/NAMESPACE/user/nothing
admin POST /checkpoint/NAMESPACE/nothing/app
admin POST /checkpoint/NAMESPACE/user/app?timeout=soon
admin POST /checkpoint/NAMESPACE/short/app
admin POST /checkpoint/NAMESPACE/blank/app
admin POST /checkpoint/NAMESPACE/user
HEALTH GET /healthz
HEALTH GET /healthz/
HEALTH GET /healthz/ping
HEALTH GET /healthz/syncloop
HEALTH GET /healthz/nothing
HEALTH GET /healthz?verbose=1
HEALTH HEAD /healthz
HEALTH POST /healthz
HEALTH GET /
HEALTH GET /metrics
nobody GET /healthz
nobody GET /pods
nobody GET /nothing
nobody POST /run/NAMESPACE/user/app?cmd=true
stranger GET /healthz
stranger GET /pods
`

// rights are what service accounts may do, each named for it, and roads what each of them asks for.
var rights = []string{
	"none", "get:nodes/proxy", "get:nodes/pods", "get:nodes/healthz", "get:nodes/configz",
	"get:nodes/metrics", "get:nodes/stats", "get:nodes/log", "get:nodes/checkpoint", "create:nodes/proxy",
}

const roads = `
GET /healthz
GET /healthz/ping
GET /pods
GET /pods/
GET /runningpods/
GET /runningpods
GET /configz
GET /stats/summary
GET /metrics
GET /metrics/slis
GET /metrics/cadvisor
GET /logs/
GET /logs
GET /debug/pprof/
GET /statusz
GET /flagz
GET /nothing
GET /
HEAD /pods
PUT /pods
PATCH /pods
DELETE /pods
OPTIONS /pods
GET /containerLogs/NAMESPACE/user/nothing
GET /exec/NAMESPACE/user/nothing?command=true&output=1
POST /exec/NAMESPACE/user/nothing?command=true&output=1
GET /attach/NAMESPACE/user/nothing?output=1
GET /portForward/NAMESPACE/nothing
POST /run/NAMESPACE/user/nothing?cmd=true
POST /checkpoint/NAMESPACE/user/nothing
`

// lines are pods besides those of passing: one whose log is known, and one that has run twice.
const lines = `---
apiVersion: v1
kind: Pod
metadata: {name: again}
spec:
  terminationGracePeriodSeconds: 0
  containers: [{name: app, image: "busybox:1.36", command: [sh, -c, "[ -e /kept/once ] && exec sleep 1000000; touch /kept/once; echo first; exit 1"], volumeMounts: [{name: kept, mountPath: /kept}]}]
  volumes: [{name: kept, emptyDir: {}}]
`

const told = `  - name: told
    image: busybox:1.36
    command: [sh, -c, "echo one; sleep 1; echo two; sleep 1; echo three >&2; sleep 1; echo four; exec sleep 1000000"]
`
