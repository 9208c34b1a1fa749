package pullrecords

import (
	"slices"

	kubeletv1beta1 "k8s.io/kubelet/config/v1beta1"
)

// Secret is a pull secret with the hash of what it holds for a repository.
type Secret = kubeletv1beta1.ImagePullSecret

// Account is a service account whose token was exchanged for credentials.
type Account = kubeletv1beta1.ImagePullServiceAccount

// Record is what is known of the pulls of an image.
type Record = kubeletv1beta1.ImagePulledRecord

// Credentials are those an image was pulled with under one name.
type Credentials = kubeletv1beta1.ImagePullCredentials

// Results of checks, as the metric kubelet_imagemanager_image_mustpull_checks_total has them.
const (
	resultPolicy       = "credentialPolicyAllowed"
	resultFound        = "credentialRecordFound"
	resultAuthenticate = "mustAuthenticate"
	resultError        = "error"
)

// learnLimit is how many secrets a record may have before it takes no more from pods that just use the image. It bounds
// what is written where namespaces come and go.
const learnLimit = 100

// known is what the records say of an image that is on the node.
type known struct {
	// record is nil where there is none.
	record *Record
	// pulling is true for a pull by the image's name that is under way, or whose end nobody saw.
	pulling bool
	// err is why the records can't be read.
	err error
}

// verdict is the answer to a pod that wants an image that is on the node.
type verdict struct {
	result string
	// learned is a secret of the pod that the record should have as it is now.
	learned *Secret
}

// use reports whether the pod may use the image as it is; else it must be pulled with the pod's credentials.
func (v verdict) use() bool { return v.result == resultPolicy || v.result == resultFound }

// decide judges a pod that wants the repository's image. shown gives the pod's own credentials for the repository, and
// is asked only where they matter.
func decide(p Policy, repository string, k known, shown func() Credentials) verdict {
	if k.err != nil {
		return verdict{result: resultError}
	}
	if !p.verifies(repository, k.record != nil || k.pulling) {
		return verdict{result: resultPolicy}
	}
	var had Credentials
	if k.record != nil {
		had = k.record.CredentialMapping[repository]
	}
	switch {
	case had.NodePodsAccessible:
		return verdict{result: resultFound}
	case len(had.KubernetesSecrets)+len(had.KubernetesServiceAccounts) == 0:
		return verdict{result: resultAuthenticate}
	}
	now := shown()
	v := matched(had.KubernetesSecrets, now.KubernetesSecrets)
	// A pod has one service account.
	if a := now.KubernetesServiceAccounts; !v.use() && len(a) > 0 && slices.Contains(had.KubernetesServiceAccounts, a[0]) {
		return verdict{result: resultFound}
	}
	return v
}

// matched judges a pod by its secrets, where the image was pulled with others or the same.
func matched(had, shown []Secret) verdict {
	room := len(had) < learnLimit
	for _, s := range shown {
		for _, old := range had {
			same := compare(s, old) == 0
			hash := old.CredentialHash != "" && s.CredentialHash == old.CredentialHash
			switch {
			case same && hash, hash && !room:
				return verdict{result: resultFound}
			case hash, same && room:
				// The same login under another name, or another login under the same name: whoever may change a secret that
				// was good for the image may use the image.
				return verdict{result: resultFound, learned: &s}
			}
		}
	}
	return verdict{result: resultAuthenticate}
}
