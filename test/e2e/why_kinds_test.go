package e2e

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"kubelot.dev/test/e2e/kit"
)

// stuck is a pod that gets stuck, and what a person must read of it.
type stuck struct {
	name, spec string
	says       []string
}

// container is a pod's spec with one container, and what stands behind it. Without a command it waits forever.
func container(fields, more string) string {
	all := []string{"name: app"}
	if !strings.Contains(fields, "image:") {
		all = append(all, `image: "busybox:1.36"`)
	}
	if fields != "" {
		all = append(all, fields)
	}
	if !strings.Contains(fields, "command: [") || strings.Contains(fields, "exec: {command:") {
		all = append(all, "command: $FOREVER")
	}
	return "  containers: [{" + strings.Join(all, ", ") + "}]\n" + more
}

// first is a pod's spec with an init container.
func first(command string) string {
	return "  initContainers: [{name: first, image: \"busybox:1.36\", command: " + command + "}]\n" + container("", "")
}

// explained creates the pods and waits until kubelot why says what it must of each.
func explained(t *testing.T, ns *kit.Namespace, list []stuck) {
	t.Helper()
	for _, s := range list {
		ns.Apply(pod(s.name, strings.ReplaceAll(s.spec, "$NS", ns.Name)))
	}
	for _, s := range list {
		t.Run(s.name, func(t *testing.T) {
			for i := range s.says {
				s.says[i] = strings.ReplaceAll(s.says[i], "$NS", ns.Name)
			}
			says(t, ns, s.name, s.says...)
		})
	}
}

// What keeps a container from its start.
func TestWhyStarts(t *testing.T) {
	t.Parallel()
	ns := bed.Namespace(t)
	ns.Apply("apiVersion: v1\nkind: Secret\nmetadata: {name: there}\nstringData: {a: b}\n")
	explained(t, ns, []stuck{
		{"program", container(`command: [nosuch]`, ""), []string{
			`$NS/program: container app can't start: the image has no program "nosuch" in its PATH.`,
			"-> correct command: in the spec of container app",
		}},
		{"file", container(`command: [/no/such]`, ""), []string{`the image has no file "/no/such", which it shall run`}},
		{"mode", container(`command: [/etc/passwd]`, ""), []string{`it may not run "/etc/passwd"`}},
		{"root", container(`securityContext: {runAsNonRoot: true}`, ""), []string{
			"it must not run as root (runAsNonRoot: true), and its image does",
			"-> set securityContext.runAsUser of container app",
		}},
		{"key", container(`env: [{name: A, valueFrom: {secretKeyRef: {name: there, key: absent}}}]`, ""), []string{
			`the Secret "there" has no key "absent"`, "-> kubectl edit Secret there -n $NS",
		}},
		{"image", container(`image: "`+bed.Registry.Addr+`/no/such:1"`, ""), []string{
			"the image " + bed.Registry.Addr + "/no/such:1 doesn't exist in the registry " + bed.Registry.Addr,
		}},
		{"imagename", container(`image: Not_An_Image`, ""), []string{"Not_An_Image can't be the name of an image"}},
		{"never", container(`image: "docker.io/library/absent:1", imagePullPolicy: Never`, ""), []string{
			"isn't on this node, and imagePullPolicy is Never",
		}},
		{"init", first("$FOREVER"), []string{
			"the pod isn't ready, because its init container first has not ended",
		}},
		{"initfails", first("[sh, -c, exit 4]"), []string{"init container first keeps ending with exit code 4"}},
	})
}

// What ends a container again and again.
func TestWhyCrashes(t *testing.T) {
	t.Parallel()
	ns := bed.Namespace(t)
	explained(t, ns, []stuck{
		{"completes", container(`command: ["true"]`, ""), []string{"container app ends by itself with exit code 0"}},
		{"shell", container(`command: [sh, -c, nosuch]`, ""), []string{
			"exit code 127, which means that a shell in it didn't find a command",
		}},
		{"liveness", container(`livenessProbe: {exec: {command: [sh, -c, "echo stuck; false"]}, `+quick+`}`, ""), []string{
			`container app is restarted because its liveness probe (sh -c echo stuck; false) fails: stuck`,
			"its liveness probe failed ", "waits for: its next start",
		}},
		{"startup", container(`startupProbe: {exec: {command: [sh, -c, "echo cold; false"]}, `+quick+`}`, ""), []string{
			"container app is restarted because its startup probe", "cold",
		}},
		{"hook", container(`lifecycle: {postStart: {exec: {command: [sh, -c, "echo no way >&2; exit 7"]}}}`, ""), []string{
			"container app is stopped after each start, because its postStart hook (sh -c echo no way >&2; exit 7) fails: " +
				"exit code 7, no way",
			"is waiting: 0 of 1 container ready",
		}},
		{"longhook", container(`lifecycle: {postStart: {exec: {command: [sleep, "600"]}}}`, ""), []string{
			"container app isn't ready, because its postStart hook (sleep 600) has not ended",
		}},
	})
}

// Probes that keep a pod from being ready.
func TestWhyProbes(t *testing.T) {
	t.Parallel()
	ns := bed.Namespace(t)
	explained(t, ns, []stuck{
		{"http", container(`readinessProbe: {httpGet: {port: 81, path: /ready}, `+quick+`}`, ""), []string{
			"its readiness probe (GET :81/ready) has failed for ", "nothing listens at ",
		}},
		{"tcp", container(`readinessProbe: {tcpSocket: {port: 82}, `+quick+`}`, ""), []string{
			"(TCP :82)", "nothing listens at ",
		}},
		{"delayed", container(`readinessProbe: {tcpSocket: {port: 82}, initialDelaySeconds: 3000}`, ""), []string{
			"its readiness probe (TCP :82) first runs 3000 s after its start", "kubelot acts at ",
		}},
		{"slow", container(`startupProbe: {tcpSocket: {port: 83}, periodSeconds: 1, failureThreshold: 3000}`, ""), []string{
			"its startup probe (TCP :83) has not succeeded in the ", "otherwise the container is restarted; kubelot acts at ",
		}},
	})
}

// Volumes that can't be mounted.
func TestWhyVolumes(t *testing.T) {
	t.Parallel()
	ns := bed.Namespace(t)
	mount := func(source string) string {
		return container("volumeMounts: [{name: v, mountPath: /v}]", "  volumes: [{name: v, "+source+"}]\n")
	}
	ns.Apply("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: there}\ndata: {a: b}\n---\n" +
		"apiVersion: v1\nkind: PersistentVolumeClaim\nmetadata: {name: pending}\nspec: {accessModes: [ReadWriteOnce], " +
		"storageClassName: none, resources: {requests: {storage: 1Gi}}}\n")
	explained(t, ns, []stuck{
		{"secret", mount("secret: {secretName: absent}"), []string{
			`$NS/secret: the pod can't start, because its volume v can't be mounted: the Secret "absent" doesn't exist in the ` +
				"namespace $NS.",
			"-> create what is missing: kubectl create secret generic absent -n $NS",
		}},
		{"key", mount("configMap: {name: there, items: [{key: absent, path: x}]}"), []string{`has no key "absent"`}},
		{"hostpath", mount("hostPath: {path: /etc, type: Socket}"), []string{`"/etc" on this node is not a socket file`}},
		{"driver", mount("csi: {driver: absent.example.com}"), []string{
			`the CSI driver "absent.example.com" isn't installed in the cluster`,
		}},
		// The scheduler doesn't let these come by themselves.
		{"claim", onThisNode + mount("persistentVolumeClaim: {claimName: absent}"), []string{
			`the PersistentVolumeClaim "absent" doesn't exist in the namespace $NS`,
		}},
		{"unbound", onThisNode + mount("persistentVolumeClaim: {claimName: pending}"), []string{
			`its claim "pending" isn't bound to a volume`, "-> kubectl describe pvc pending -n $NS",
		}},
	})
}

// onThisNode goes round the scheduler.
const onThisNode = "  nodeName: " + kit.NodeName + "\n"

// Pods that the node refuses or ends.
func TestWhyEnds(t *testing.T) {
	t.Parallel()
	ns := bed.Namespace(t)
	explained(t, ns, []stuck{
		{"cpu", onThisNode + container(`resources: {requests: {cpu: "1000"}}`, ""), []string{
			"this node has refused it: this node hasn't enough cpu: it requests 1000000m, and ", "is ended: Failed, OutOfcpu",
		}},
		{"labels", onThisNode + container("", "  nodeSelector: {no: such}\n"), []string{
			"its nodeSelector or node affinity doesn't match this node's labels",
		}},
		{
			"sysctl", onThisNode + container("", "  securityContext: {sysctls: [{name: kernel.msgmax, value: '1'}]}\n"),
			[]string{`the kernel parameter "kernel.msgmax" that it asks for is not allowlisted`},
		},
		{"deadline", container("", "  activeDeadlineSeconds: 1\n"), []string{"it ran longer than its activeDeadlineSeconds"}},
		{
			"job", container(`command: [sh, -c, "echo no input > /dev/termination-log; exit 3"]`, "  restartPolicy: Never\n"),
			[]string{"it has failed: container app ended with exit code 3: no input"},
		},
	})
}

// Pods that don't go away.
func TestWhyStops(t *testing.T) {
	t.Parallel()
	ns := bed.Namespace(t)
	ns.Apply(patient(pod("hook", container(`lifecycle: {preStop: {sleep: {seconds: 500}}}`, "")) + "\n---\n" +
		pod("command", container(`lifecycle: {preStop: {exec: {command: [sleep, "500"]}}}`, "")) + "\n---\n" +
		pod("deaf", container(`command: [sh, -c, 'trap "" TERM; while :; do sleep 1000 & wait; done']`, ""))))
	ns.Apply(strings.Replace(pod("held", container("", "")), "  name: held\n",
		"  name: held\n  finalizers: [example.com/hold]\n", 1))
	pods := map[string]*corev1.Pod{}
	for _, name := range []string{"hook", "command", "deaf", "held"} {
		pods[name] = ns.Running(name)
	}
	ns.HeedsTERM(pods["deaf"], "app")
	for name := range pods {
		ns.Delete(name, -1)
	}
	for name, words := range map[string][]string{
		"hook": {
			"container app has not ended, because its preStop hook (sleep 500 s) has run for ",
			" of the grace period are left", "; kubelot acts at ", "run preStop hook app: under way for ", ", since ",
			"-> kubectl delete pod hook -n " + ns.Name + " --grace-period=1 ends it now",
		},
		"command": {
			"container app has not ended, because its preStop hook (sleep 500) has run for ", " of the grace period are left",
		},
		"deaf": {"its program ignores the signal, or takes its time", "stop container app: under way for "},
		"held": {"it is over on this node, and finalizers keep its API object: example.com/hold"},
	} {
		says(t, ns, name, words...)
	}
	// The advice is good.
	for _, name := range []string{"hook", "command", "deaf"} {
		ns.Delete(name, 1)
		ns.Gone(pods[name])
	}
	ns.Kubectl("patch", "pod", "held", "--type=merge", "-p", `{"metadata":{"finalizers":null}}`)
	ns.Gone(pods["held"])
}

// A registry that refuses. It isn't parallel: the registry refuses all its clients.
func TestWhyRegistry(t *testing.T) {
	ns := bed.Namespace(t)
	ref := push(t, "why/app")
	bed.Registry.Require("somebody", "pass:word")
	ns.Apply(imagePod("login", ref, "Always"))
	says(t, ns, "login", "the registry "+bed.Registry.Addr+" wants a login for the image "+ref, "imagePullSecrets")
	ns.Apply(imagePod("secret", ref, "Always") + "  imagePullSecrets: [{name: absent}]\n")
	says(t, ns, "secret", "its imagePullSecrets name a Secret that doesn't exist: absent",
		"-> create what is missing: kubectl create secret docker-registry absent -n "+ns.Name)
	bed.Registry.Require("", "")
	bed.Registry.Refuse(true)
	defer bed.Registry.Refuse(false)
	ns.Apply(imagePod("failing", ref, "Always"))
	says(t, ns, "failing", "the registry "+bed.Registry.Addr+" fails itself")
}
