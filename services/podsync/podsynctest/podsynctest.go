// Package podsynctest shows those of podsync's internal packages that test/differential compares with Kubernetes' own
// code. It adds nothing to them, and no program links it (crew's import rules).
package podsynctest

import (
	corev1 "k8s.io/api/core/v1"

	"kubelot.dev/services/podsync/internal/image"
	"kubelot.dev/services/podsync/internal/image/pullrecords"
	"kubelot.dev/services/podsync/internal/runtime/cgroups"
	"kubelot.dev/services/podsync/internal/source/manifest"
)

// Origin is where a manifest comes from.
type Origin = manifest.Origin

// AnnotationHash is the annotation with a static pod's hash.
const AnnotationHash = manifest.AnnotationHash

// Pod is the static pod of a manifest, with defaults and validated.
func Pod(data []byte, from Origin) (pod *corev1.Pod, warnings []string, err error) {
	return manifest.Pod(data, from)
}

// UnvalidatedPod is the same pod without validation.
func UnvalidatedPod(data []byte, from Origin) (*corev1.Pod, error) {
	return manifest.Unvalidated(data, from)
}

// RecordsConfig says where the records of image pulls are.
type RecordsConfig = pullrecords.Config

// Records are the records of image pulls, by which a pod may use an image or not.
type Records = pullrecords.Records

// Policy says whose use of an image is verified.
type Policy = pullrecords.Policy

// Secret is a pull secret as the records have it.
type Secret = pullrecords.Secret

// Credentials are those of an image as the records have them.
type Credentials = pullrecords.Credentials

// Account is a service account as the records have it.
type Account = pullrecords.Account

// OpenRecords reads the records in a directory.
func OpenRecords(cfg RecordsConfig) (*Records, error) { return pullrecords.Open(cfg) }

// PullerConfig says how images are pulled.
type PullerConfig = image.Config

// PullRequest asks for an image.
type PullRequest = image.Request

// PullEvent is what a puller reports.
type PullEvent = image.Event

// Puller pulls images and writes the records.
type Puller = image.Puller

// Runtime is what a puller needs of the container runtime.
type Runtime = image.Runtime

// NewPuller makes a puller that reports to record.
func NewPuller(cfg PullerConfig, rt Runtime, record func(PullEvent)) *Puller {
	return image.New(cfg, rt, record)
}

// CgroupConfig says how pods' cgroups are limited.
type CgroupConfig = cgroups.Config

// Protection says how the memory that pods request is protected.
type Protection = cgroups.Protection

// CgroupLimits are those of the pod's cgroup.
func CgroupLimits(pod *corev1.Pod, cfg CgroupConfig) cgroups.Limits {
	return cgroups.LimitsOf(pod, cfg)
}
