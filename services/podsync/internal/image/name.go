package image

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"

	"kubelot.dev/cri/imagename"
)

const defaultTag = "latest"

// name is an image reference taken apart.
type name struct {
	// full is the reference as in the spec, with the default tag where it has neither tag nor digest. It isn't
	// qualified with a registry: which one a short name means is for the runtime to say.
	full string
	// repository is qualified, such as docker.io/library/nginx; credentials are looked up by it.
	repository string
	tag        string
}

func parseName(image string) (name, error) {
	parsed, err := imagename.ParseQualified(image)
	if err != nil {
		return name{}, fmt.Errorf("couldn't parse image name %q: %w", image, err)
	}
	n := name{full: image, repository: parsed.Repository, tag: parsed.Tag}
	if n.tag == "" && parsed.Digest == "" {
		n.tag = defaultTag
		n.full = image + ":" + defaultTag
	}
	return n, nil
}

// policyFor fills in what the API server fills in for pods that don't come from a manifest
// (Container.imagePullPolicy).
func policyFor(policy corev1.PullPolicy, n name) corev1.PullPolicy {
	switch {
	case policy != "":
		return policy
	case n.tag == defaultTag:
		return corev1.PullAlways
	}
	return corev1.PullIfNotPresent
}
