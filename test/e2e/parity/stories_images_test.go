package parity

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"kubelot.dev/test/e2e/kit"
)

// pullSecrets are the secrets that the stories name: passwords by the location in the docker configuration.
var pullSecrets = map[string]map[string]string{
	"right":    {"$PRIVATE": password},
	"wrong":    {"$PRIVATE": "not it"},
	"path":     {"$PRIVATE": "not it", "http://$PRIVATE/team": password},
	"wildcard": {"*.0.0.1:$PRIVATEPORT": password},
	"changing": {"$PRIVATE": password},
}

// lenders are pods of another namespace that bring images before the stories begin: with a pull secret, without one,
// and with the node's login.
var lenders = map[string]string{
	"secret": withSecret("$PRIVATE/borrowed:1", "{name: elsewhere}"),
	"open":   image("$OPEN/borrowed:1", ""),
	"node":   image("$PRIVATE/node/borrowed:1", ""),
}

const never = ", imagePullPolicy: Never"

// image is a pod that runs an image.
func image(ref, more string) string {
	return "  containers: [{name: app, image: \"" + ref + "\", " + forever + more + "}]\n"
}

func withSecret(ref, names string) string {
	return image(ref, "") + "  imagePullSecrets: [" + names + "]\n"
}

// otherWaiting waits until the named container, which isn't app, waits for the reason.
func otherWaiting(name, reason string) func(*corev1.Pod) bool {
	return func(p *corev1.Pod) bool {
		s := kit.Status(p, name)
		return s != nil && s.State.Waiting != nil && s.State.Waiting.Reason == reason
	}
}

// restarted waits for the container's second run; how many there were is compared.
func restarted(p *corev1.Pod) bool { return kit.Ready(p) && kit.Status(p, "app").RestartCount >= 1 }

var imageStories = []story{
	{name: "pulled", spec: image("$OPEN/pulled:1", ""), settled: kit.Ready, event: "Started"},
	{
		name: "pulledalways", spec: image("$OPEN/always:1", ", imagePullPolicy: Always"),
		settled: kit.Ready, event: "Started",
	},
	{name: "digest", spec: image("$OPEN/digest@$DIGEST", ""), settled: kit.Ready, event: "Started"},
	{name: "tagdigest", spec: image("$OPEN/tagdigest:1@$DIGEST", ""), settled: kit.Ready, event: "Started"},
	{
		name:    "nosuchdigest",
		spec:    image("$OPEN/digest@sha256:0000000000000000000000000000000000000000000000000000000000000000", ""),
		settled: waiting("ImagePullBackOff"), event: "BackOff",
	},
	{name: "nosuchtag", spec: image("$OPEN/pulled:2", ""), settled: waiting("ImagePullBackOff"), event: "BackOff"},
	{
		name: "nosuchtaginit", spec: "  initContainers: [{name: one, image: \"$OPEN/pulled:2\"}]\n" + app(forever),
		settled: otherWaiting("one", "ImagePullBackOff"), event: "BackOff",
	},
	{
		name: "moved", spec: image("$OPEN/moved:1", ", imagePullPolicy: Always"), settled: kit.Ready,
		then: func(t *testing.T, s *stage, p *corev1.Pod) {
			s.push(t, s.open, "moved", "elsewhere")
			s.bed.KillContainer(t, p, "app")
		}, again: restarted, event: "Started",
	},
	{
		name: "recovered", spec: image("$CLOSED/app:1", ""), settled: waiting("ImagePullBackOff"),
		then: func(_ *testing.T, s *stage, p *corev1.Pod) {
			s.ns.Event(p.Name, "BackOff", "")
			s.closed.Refuse(false)
		}, again: kit.Ready, event: "Started",
	},
	{name: "nobody", spec: image("$PRIVATE/nobody:1", ""), settled: waiting("ImagePullBackOff"), event: "BackOff"},
	{
		name: "wrong", spec: withSecret("$PRIVATE/wrong:1", "{name: wrong}"),
		settled: waiting("ImagePullBackOff"), event: "BackOff",
	},
	{
		name: "absent", spec: withSecret("$PRIVATE/absent:1", "{name: absent}, {name: gone}"),
		settled: waiting("ImagePullBackOff"), event: "BackOff",
	},
	{name: "right", spec: withSecret("$PRIVATE/right:1", "{name: right}"), settled: kit.Ready, event: "Started"},
	{
		name: "both", spec: withSecret("$PRIVATE/both:1", "{name: wrong}, {name: absent}, {name: right}"),
		settled: kit.Ready, event: "Started",
	},
	{name: "old", spec: withSecret("$PRIVATE/old:1", "{name: old}"), settled: kit.Ready, event: "Started"},
	{name: "path", spec: withSecret("$PRIVATE/team/path:1", "{name: path}"), settled: kit.Ready, event: "Started"},
	{name: "wildcard", spec: withSecret("$PRIVATE/wildcard:1", "{name: wildcard}"), settled: kit.Ready, event: "Started"},
	{
		name: "account", spec: image("$PRIVATE/account:1", "") + "  serviceAccountName: puller\n",
		settled: kit.Ready, event: "Started",
	},
	{name: "borrowed", spec: image("$PRIVATE/borrowed:1", ""), settled: waiting("ImagePullBackOff"), event: "BackOff"},
	{
		name: "borrowedwrong", spec: withSecret("$PRIVATE/borrowed:1", "{name: wrong}"),
		settled: waiting("ImagePullBackOff"), event: "BackOff",
	},
	{
		name: "borrowedelsewhere", spec: withSecret("$PRIVATE/borrowed:1", "{name: elsewhere}"),
		settled: waiting("ImagePullBackOff"), event: "BackOff",
	},
	{
		name: "borrowednever", spec: image("$PRIVATE/borrowed:1", never), settled: waiting("ErrImageNeverPull"),
		event: "ErrImageNeverPull",
	},
	{name: "borrowedsame", spec: withSecret("$PRIVATE/borrowed:1", "{name: right}"), settled: kit.Ready, event: "Started"},
	{name: "borrowedsamenever", spec: image("$PRIVATE/borrowed:1", never) +
		"  imagePullSecrets: [{name: wrong}, {name: right}]\n", settled: kit.Ready, event: "Started"},
	{
		name: "borrowedinit", spec: "  initContainers: [{name: one, image: \"$PRIVATE/borrowed:1\"}]\n" + app(forever),
		settled: otherWaiting("one", "ImagePullBackOff"), event: "BackOff",
	},
	{
		name: "borrowedvolume", spec: app(forever+", volumeMounts: [{name: v, mountPath: /v}]") +
			"  volumes: [{name: v, image: {reference: \"$PRIVATE/borrowed:1\"}}]\n",
		settled: waiting("ImagePullBackOff"), event: "BackOff",
	},
	{
		name: "borroweddebug", spec: app(forever), settled: kit.Ready, then: debug("$PRIVATE/borrowed:1"),
		again: otherWaiting("debug", "ImagePullBackOff"), event: "BackOff",
	},
	{name: "borrowedopen", spec: image("$OPEN/borrowed:1", never), settled: kit.Ready, event: "Started"},
	{name: "borrowednode", spec: image("$PRIVATE/node/borrowed:1", never), settled: kit.Ready, event: "Started"},
	{
		name: "changedlogin", spec: withSecret("$PRIVATE/changing:1", "{name: changing}"), settled: kit.Ready,
		then: func(t *testing.T, s *stage, p *corev1.Pod) {
			s.ns.Kubectl("patch", "secret", "changing", "--patch", fmt.Sprintf(`{"stringData": {".dockerconfigjson": %q}}`,
				s.logins(pullSecrets["wrong"])))
			s.bed.KillContainer(t, p, "app")
		}, again: restarted, event: "Started",
	},
	{name: "nodelogin", spec: image("$PRIVATE/node:1", ""), settled: kit.Ready, event: "Started"},
	{
		name: "imagevolume", spec: app(forever+", volumeMounts: [{name: v, mountPath: /v, readOnly: true}]") +
			"  volumes: [{name: v, image: {reference: \"$OPEN/volume:1\"}}]\n",
		settled: kit.Ready, event: "Started", look: "ls /v",
	},
	{
		name: "noimagevolume", spec: app(forever+", volumeMounts: [{name: v, mountPath: /v}]") +
			"  volumes: [{name: v, image: {reference: \"$OPEN/volume:2\"}}]\n",
		settled: waiting("ImagePullBackOff"), event: "BackOff",
	},
	{name: "changed", spec: app(forever), settled: kit.Ready, then: func(t *testing.T, s *stage, p *corev1.Pod) {
		s.patch(t, p, `{"spec": {"containers": [{"name": "app", "image": "docker.io/library/busybox:1.36"}]}}`)
	}, again: restarted, event: "Killing"},
}
