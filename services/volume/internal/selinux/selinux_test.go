package selinux

import (
	"slices"
	"strings"
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
	if o.Level == "" {
		return "", nil
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

func TestLabelOfAVolume(t *testing.T) {
	recursive := corev1.SELinuxChangePolicyRecursive
	without := container("s0:c2")
	without.VolumeMounts = without.VolumeMounts[:1]
	for _, c := range []struct {
		name       string
		init, main []corev1.Container
		pod        *corev1.PodSecurityContext
		want, fail string
	}{
		{name: "nobody says", main: []corev1.Container{container("-")}},
		{name: "nothing is said", main: []corev1.Container{container("")}},
		{name: "the container", main: []corev1.Container{container("s0:c1")}, want: "u:r:t:s0:c1"},
		{
			name: "some containers", init: []corev1.Container{container("s0:c1"), container("")},
			main: []corev1.Container{container("-"), container("s0:c1"), without}, want: "u:r:t:s0:c1",
		},
		{
			name: "the pod", main: []corev1.Container{container("-")},
			pod: &corev1.PodSecurityContext{SELinuxOptions: &corev1.SELinuxOptions{Level: "s0:c9"}}, want: "u:r:t:s0:c9",
		},
		{
			name: "files one by one", main: []corev1.Container{container("s0:c1")},
			pod: &corev1.PodSecurityContext{SELinuxChangePolicy: &recursive},
		},
		{
			name: "two", init: []corev1.Container{container("s0:c1")}, main: []corev1.Container{container("s0:c2")},
			fail: `"u:r:t:s0:c1" and "u:r:t:s0:c2"`,
		},
	} {
		pod := &corev1.Pod{Spec: corev1.PodSpec{InitContainers: c.init, Containers: c.main, SecurityContext: c.pod}}
		got, err := Labels(fake).OfVolume(pod, "v")
		if got != c.want || (err != nil) != (c.fail != "") || err != nil && !strings.Contains(err.Error(), c.fail) {
			t.Errorf("%s: %q, %v; want %q", c.name, got, err, c.want+c.fail)
		}
		if got, err := Labels(nil).OfVolume(pod, "v"); got != "" || err != nil {
			t.Errorf("%s, on a node without SELinux: %q, %v", c.name, got, err)
		}
	}
}
