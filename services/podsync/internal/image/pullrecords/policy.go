package pullrecords

import (
	"fmt"
	"slices"
	"strings"

	kubeletv1beta1 "k8s.io/kubelet/config/v1beta1"

	"kubelot.dev/cri/imagename"
)

// Policy says of which images a pod must have the credentials. The zero Policy is the default,
// NeverVerifyPreloadedImages.
type Policy struct {
	// Kind is the configuration's imagePullCredentialsVerificationPolicy.
	Kind kubeletv1beta1.ImagePullCredentialsVerificationPolicy
	// Allowed are the configuration's preloadedImagesVerificationAllowlist: repositories, or what they begin with before
	// /*.
	Allowed []string
}

// verifies reports whether a pod that uses the repository's image must have credentials for it; ours is true if an
// agent of this node has pulled the image, or tried to. An unknown policy verifies.
func (p Policy) verifies(repository string, ours bool) bool {
	switch p.Kind {
	case kubeletv1beta1.NeverVerify:
		return false
	case "", kubeletv1beta1.NeverVerifyPreloadedImages:
		return ours
	case kubeletv1beta1.NeverVerifyAllowlistedImages:
		return !slices.ContainsFunc(p.Allowed, func(pattern string) bool {
			if prefix, ok := strings.CutSuffix(pattern, "*"); ok {
				return strings.HasPrefix(repository, prefix)
			}
			return repository == pattern
		})
	}
	return true
}

// repositoryOf is the image's name as in the spec without tag and digest: what records know credentials by. It isn't
// qualified: which registry a short name means is for the runtime to say.
func repositoryOf(image string) (string, error) {
	name, err := imagename.Parse(image)
	if err != nil {
		return "", fmt.Errorf("parse image name %q: %w", image, err)
	}
	return name.Repository, nil
}

// referenceOf is the image's name as the runtime lists it: qualified, and with a digest or else a tag.
func referenceOf(image string) (string, error) {
	name, err := imagename.ParseQualified(image)
	if err != nil {
		return "", fmt.Errorf("parse image name %q: %w", image, err)
	}
	return name.Exact().String(), nil
}
