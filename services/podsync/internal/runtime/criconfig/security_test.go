package criconfig

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

func TestNonRoot(t *testing.T) {
	nonRoot := func(_ *corev1.Pod, c *corev1.Container) {
		c.SecurityContext = &corev1.SecurityContext{RunAsNonRoot: ref(true)}
	}
	where := ` (pod: "web_ns(u)", container: app)`
	for _, c := range []struct {
		name   string
		change func(*corev1.Pod, *corev1.Container)
		user   ImageUser
		want   string
	}{
		{"image of a user", nonRoot, ImageUser{UID: ref(int64(7))}, ""},
		{
			"image of root", nonRoot,
			ImageUser{UID: ref(int64(0))},
			"container has runAsNonRoot and image will run as root" + where,
		},
		{"image without a user", nonRoot, ImageUser{}, "container has runAsNonRoot and image will run as root" + where},
		{"image of a name", nonRoot, ImageUser{Username: "www"}, "container has runAsNonRoot and image has non-numeric " +
			"user (www), cannot verify user is non-root" + where},
		{"image of a number too large", nonRoot, ImageUser{UID: ref(int64(1) << 40)}, "has an invalid user id"},
		{"user of the pod", func(p *corev1.Pod, c *corev1.Container) {
			nonRoot(p, c)
			p.Spec.SecurityContext = &corev1.PodSecurityContext{RunAsUser: ref(int64(9))}
		}, ImageUser{}, ""},
		{"root of the pod", func(p *corev1.Pod, _ *corev1.Container) {
			p.Spec.SecurityContext = &corev1.PodSecurityContext{RunAsUser: ref(int64(0)), RunAsNonRoot: ref(true)}
		}, ImageUser{}, "container's runAsUser breaks non-root policy" + where},
		{"allowed by the container", func(p *corev1.Pod, c *corev1.Container) {
			p.Spec.SecurityContext = &corev1.PodSecurityContext{RunAsNonRoot: ref(true)}
			c.SecurityContext = &corev1.SecurityContext{RunAsNonRoot: ref(false)}
		}, ImageUser{}, ""},
	} {
		pod, container := onePod(c.change)
		in := inputFor(pod, container)
		in.ImageUser = c.user
		_, err := Container(testNode(), in)
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: got %v, want %q", c.name, err, c.want)
		}
	}
}

func TestImageUser(t *testing.T) {
	pod, container := onePod(nil)
	in := inputFor(pod, container)
	for _, c := range []struct {
		user ImageUser
		uid  *runtimeapi.Int64Value
		name string
	}{
		{ImageUser{}, &runtimeapi.Int64Value{}, ""},
		{ImageUser{UID: ref(int64(5))}, &runtimeapi.Int64Value{Value: 5}, ""},
		{ImageUser{Username: "www"}, nil, "www"},
	} {
		in.ImageUser = c.user
		config, err := Container(testNode(), in)
		if err != nil {
			t.Fatal(err)
		}
		sc := config.Linux.SecurityContext
		if (sc.RunAsUser == nil) != (c.uid == nil) || sc.GetRunAsUser().GetValue() != c.uid.GetValue() ||
			sc.RunAsUsername != c.name {
			t.Errorf("%+v: got %v, %q", c.user, sc.RunAsUser, sc.RunAsUsername)
		}
	}
}

func TestAppArmorAnnotation(t *testing.T) {
	for annotation, want := range map[string]string{
		"runtime/default": "RuntimeDefault", "unconfined": "Unconfined", "localhost/p": "Localhost", "": "RuntimeDefault",
		"bogus": "RuntimeDefault",
	} {
		pod, container := onePod(func(p *corev1.Pod, _ *corev1.Container) {
			if annotation != "" {
				p.Annotations = map[string]string{"container.apparmor.security.beta.kubernetes.io/app": annotation}
			}
			p.Spec.SecurityContext = &corev1.PodSecurityContext{AppArmorProfile: &corev1.AppArmorProfile{
				Type: corev1.AppArmorProfileTypeRuntimeDefault,
			}}
		})
		config, err := Container(testNode(), inputFor(pod, container))
		if err != nil {
			t.Fatal(err)
		}
		if got := config.Linux.SecurityContext.Apparmor.ProfileType.String(); got != want {
			t.Errorf("%q: got %s, want %s", annotation, got, want)
		}
	}
}

func TestSeccompDefault(t *testing.T) {
	pod, container := onePod(nil)
	for on, want := range map[bool]string{true: "RuntimeDefault", false: "Unconfined"} {
		node := testNode()
		node.SeccompDefault = on
		config, err := Container(node, inputFor(pod, container))
		if err != nil || config.Linux.SecurityContext.Seccomp.ProfileType.String() != want {
			t.Errorf("seccompDefault %v: got %v, %v", on, config, err)
		}
	}
}
