package pullrecords

import (
	"cmp"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// added is the record of the image with the credentials that it was pulled with under the repository's name; without
// credentials nobody knows who pulled it, and who wants it must show some. old may be nil, and isn't changed.
func added(old *Record, ref, repository string, with *Credentials, now time.Time) *Record {
	r := old.DeepCopy()
	if r == nil {
		r = &Record{ImageRef: ref}
	}
	r.LastUpdatedTime = metav1.NewTime(now)
	if with == nil {
		return r
	}
	if r.CredentialMapping == nil {
		r.CredentialMapping = map[string]Credentials{}
	}
	r.CredentialMapping[repository] = merged(r.CredentialMapping[repository], *with)
	return r
}

// merged are both credentials: those of the node let all pods in, and a secret is kept once, with its latest hash. A
// service account is kept once too.
func merged(old, with Credentials) Credentials {
	if old.NodePodsAccessible || with.NodePodsAccessible {
		return Credentials{NodePodsAccessible: true}
	}
	all := slices.Clone(with.KubernetesSecrets)
	for _, s := range old.KubernetesSecrets {
		if !slices.ContainsFunc(all, func(n Secret) bool { return compare(n, s) == 0 }) {
			all = append(all, s)
		}
	}
	slices.SortFunc(all, compare)
	accounts := slices.Concat(old.KubernetesServiceAccounts, with.KubernetesServiceAccounts)
	slices.SortFunc(accounts, func(a, b Account) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name), cmp.Compare(a.UID, b.UID))
	})
	return Credentials{KubernetesSecrets: all, KubernetesServiceAccounts: slices.Compact(accounts)}
}

// compare orders secrets, not their contents.
func compare(a, b Secret) int {
	return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name), cmp.Compare(a.UID, b.UID))
}
