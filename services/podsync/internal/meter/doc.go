// Package meter counts and times what podsync does, under the names, labels and buckets of the kubelet's metrics
// (pkg/kubelet/metrics of Kubernetes 1.36).
//
// Each metric is fed at one place: the dispatcher tells of pods that come, wait and go, a worker of its rounds and of the
// statuses it states, the actor of its deeds, the puller of its pulls, the cgroup manager of its operations. What has no
// counterpart here is measured by what comes closest, and says so.
package meter
