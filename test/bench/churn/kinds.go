package churn

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// Kind is one kind of pod.
type Kind struct {
	Name string
	// done is what such a pod is waited for before it is deleted.
	done state
	spec func(image string) corev1.PodSpec
}

// runs is a command that goes on until it is told to end.
var runs = []string{"sh", "-c", `trap "exit 0" TERM; while :; do sleep 3600 & wait; done`}

// Kinds are all kinds, each of which leaves other things behind on a node that forgets to clean up.
var Kinds = []Kind{
	// A pod as most are: one container, and the token of its service account.
	{Name: "plain", done: isReady, spec: plain},
	// Volumes of several kinds, and an init container.
	{Name: "volumes", done: isReady, spec: withVolumes},
	// An exec probe each second.
	{Name: "probed", done: isReady, spec: probed},
	// A container that fails at once, and isn't started again.
	{Name: "ends", done: isEnded, spec: ends},
}

// KindsOf are the kinds of those names.
func KindsOf(names []string) ([]Kind, error) {
	var chosen []Kind
	for _, name := range names {
		i := slices.IndexFunc(Kinds, func(k Kind) bool { return k.Name == name })
		if i < 0 {
			return nil, fmt.Errorf("no kind of pod %q; there are %s", name, strings.Join(Names(), ", "))
		}
		chosen = append(chosen, Kinds[i])
	}
	if len(chosen) == 0 {
		return nil, fmt.Errorf("no kind of pod given; there are %s", strings.Join(Names(), ", "))
	}
	return chosen, nil
}

// Names are those of all kinds.
func Names() []string {
	var names []string
	for _, kind := range Kinds {
		names = append(names, kind.Name)
	}
	return names
}

func container(name, image string, command ...string) corev1.Container {
	return corev1.Container{Name: name, Image: image, ImagePullPolicy: corev1.PullIfNotPresent, Command: command}
}

func plain(image string) corev1.PodSpec {
	return corev1.PodSpec{Containers: []corev1.Container{container("main", image, runs...)}}
}

func withVolumes(image string) corev1.PodSpec {
	mounts := []corev1.VolumeMount{{Name: "settings", MountPath: "/settings"}, {Name: "scratch", MountPath: "/scratch"}}
	first, main := container("first", image, "true"), container("main", image, runs...)
	first.VolumeMounts, main.VolumeMounts = mounts, mounts
	settings := &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: "settings"}}
	return corev1.PodSpec{
		InitContainers: []corev1.Container{first}, Containers: []corev1.Container{main},
		Volumes: []corev1.Volume{
			{Name: "settings", VolumeSource: corev1.VolumeSource{ConfigMap: settings}},
			{Name: "scratch", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}},
		},
	}
}

func probed(image string) corev1.PodSpec {
	main := container("main", image, runs...)
	exec := corev1.ProbeHandler{Exec: &corev1.ExecAction{Command: []string{"true"}}}
	main.ReadinessProbe = &corev1.Probe{ProbeHandler: exec, PeriodSeconds: 1}
	main.LivenessProbe = &corev1.Probe{ProbeHandler: exec, PeriodSeconds: 1}
	return corev1.PodSpec{Containers: []corev1.Container{main}}
}

func ends(image string) corev1.PodSpec {
	return corev1.PodSpec{
		RestartPolicy: corev1.RestartPolicyNever,
		Containers:    []corev1.Container{container("main", image, "sh", "-c", "exit 3")},
	}
}
