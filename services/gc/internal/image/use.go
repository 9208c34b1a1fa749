package image

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"kubelot.dev/cri/imagename"
	"kubelot.dev/cri/labels"
	"kubelot.dev/daemon/podspec"
)

// InUse says who uses each image, by its key: containers of any state, pods that have not ended, and sandboxes.
func InUse(images []*runtimeapi.Image, containers []*runtimeapi.Container, pods []*corev1.Pod, sandbox string,
) map[string]string {
	keys := index(images)
	inUse := map[string]string{}
	use := func(name, by string) {
		// An ID such as sha256:12ab looks like a name with a tag.
		for _, key := range slices.Concat(keys[name], keys[normal(name)]) {
			if inUse[key] == "" {
				inUse[key] = by
			}
		}
	}
	for _, c := range containers {
		pod := labels.Pod(c.GetLabels())
		by := fmt.Sprintf("container %s of %s/%s", c.GetLabels()[labels.ContainerName], pod.Namespace, pod.Name)
		for _, name := range []string{c.GetImageId(), c.GetImageRef(), c.GetImage().GetImage()} {
			use(name, by)
		}
	}
	for _, pod := range pods {
		for _, name := range references(pod) {
			use(name, fmt.Sprintf("pod %s/%s", pod.Namespace, pod.Name))
		}
	}
	use(sandbox, "the sandboxes of pods")
	return inUse
}

// index are the keys of the images by everything they are called.
func index(images []*runtimeapi.Image) map[string][]string {
	keys := map[string][]string{}
	for _, i := range images {
		names := map[string]bool{i.GetId(): true}
		for _, name := range slices.Concat(i.GetRepoTags(), i.GetRepoDigests()) {
			names[normal(name)] = true
		}
		for name := range names {
			keys[name] = append(keys[name], Key(i))
		}
	}
	return keys
}

// references are the images that the pod's spec names: of its containers and its image volumes.
func references(pod *corev1.Pod) []string {
	var names []string
	for c := range podspec.Containers(&pod.Spec) {
		names = append(names, c.Image)
	}
	for i := range pod.Spec.Volumes {
		if v := pod.Spec.Volumes[i].Image; v != nil {
			names = append(names, v.Reference)
		}
	}
	return names
}

// normal is a reference with its registry and its tag or digest; what is none, such as an ID, stays as it is.
func normal(name string) string {
	parsed, err := imagename.ParseQualified(name)
	if err != nil {
		return name
	}
	return parsed.Exact().String()
}
