package selinux

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

func TestOptions(t *testing.T) {
	all := &corev1.SELinuxOptions{User: "u", Role: "r", Type: "t", Level: "s0:c1,c2"}
	if got, want := options(all), []string{"user:u", "role:r", "type:t", "level:s0:c1,c2"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	if got := options(&corev1.SELinuxOptions{}); len(got) > 0 {
		t.Errorf("of nothing it makes %q", got)
	}
}

// fake is a node whose labels have only levels.
func fake(o *corev1.SELinuxOptions) (string, error) {
	switch o.Level {
	case "":
		return "", nil
	case "wrong":
		return "", errLevel
	}
	return "u:r:t:" + o.Level, nil
}

// container has the volume v and the level; - stands for no options, and an empty level for empty ones.
func container(level string) corev1.Container {
	c := corev1.Container{VolumeMounts: []corev1.VolumeMount{{Name: "other"}, {Name: "v"}}}
	if level != "-" {
		c.SecurityContext = &corev1.SecurityContext{SELinuxOptions: &corev1.SELinuxOptions{Level: level}}
	}
	return c
}

func TestLabelsOfAVolume(t *testing.T) {
	recursive, option := corev1.SELinuxChangePolicyRecursive, corev1.SELinuxChangePolicyMountOption
	without := container("s0:c2")
	without.VolumeMounts = without.VolumeMounts[:1]
	for _, c := range []struct {
		name       string
		init, main []corev1.Container
		pod        *corev1.PodSecurityContext
		want       []string
	}{
		{name: "nobody says", main: []corev1.Container{container("-")}},
		{name: "nothing is said", main: []corev1.Container{container("")}, want: []string{""}},
		{name: "the container", main: []corev1.Container{container("s0:c1")}, want: []string{"u:r:t:s0:c1"}},
		{
			name: "some containers", init: []corev1.Container{container("s0:c1")},
			main: []corev1.Container{container("-"), container("s0:c1"), without}, want: []string{"u:r:t:s0:c1"},
		},
		{
			name: "the pod", main: []corev1.Container{container("-")}, want: []string{"u:r:t:s0:c9"},
			pod: &corev1.PodSecurityContext{SELinuxOptions: &corev1.SELinuxOptions{Level: "s0:c9"}},
		},
		{
			name: "files one by one", main: []corev1.Container{container("s0:c1")},
			pod: &corev1.PodSecurityContext{SELinuxChangePolicy: &recursive},
		},
		{
			name: "by a mount option", main: []corev1.Container{container("s0:c1")}, want: []string{"u:r:t:s0:c1"},
			pod: &corev1.PodSecurityContext{SELinuxChangePolicy: &option},
		},
		{
			name: "two", init: []corev1.Container{container("s0:c1")}, main: []corev1.Container{container("s0:c2")},
			want: []string{"u:r:t:s0:c1", "u:r:t:s0:c2"},
		},
		{
			name: "one of its own", main: []corev1.Container{container("s0:c1"), container("")},
			want: []string{"u:r:t:s0:c1", ""},
		},
	} {
		pod := &corev1.Pod{Spec: corev1.PodSpec{InitContainers: c.init, Containers: c.main, SecurityContext: c.pod}}
		if got, err := Labels(fake).ofVolume(pod, "v"); !slices.Equal(got, c.want) || err != nil {
			t.Errorf("%s: %q, %v; want %q", c.name, got, err, c.want)
		}
	}
}

// The kernel's own form of options, see show_sid of security/selinux/hooks.c.
func TestLabelAmongOptions(t *testing.T) {
	for options, want := range map[string]string{
		"":                                       "",
		"rw,seclabel":                            "",
		"rw,context=u:r:t:s0":                    "u:r:t:s0",
		"context=u:r:t:s0,errors=continue":       "u:r:t:s0",
		`rw,context="u:r:t:s0:c1,c2",noquota`:    "u:r:t:s0:c1,c2",
		"rw,fscontext=u:r:f:s0,context=u:r:t:s0": "u:r:t:s0",
		"rw,rootcontext=u:r:t:s0":                "",
	} {
		if got := labelIn(options); got != want {
			t.Errorf("%s: %q; want %q", options, got, want)
		}
	}
	if got := labelIn("rw," + Option("u:r:t:s0:c1,c2")); got != "u:r:t:s0:c1,c2" {
		t.Errorf("its own option has the label %q", got)
	}
}
