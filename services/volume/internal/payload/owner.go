package payload

import (
	"io/fs"

	corev1 "k8s.io/api/core/v1"

	"kubelot.dev/daemon/podspec"
)

// TokenMode is the mode of a service-account token's file: nobody but its owner reads it where the owner is
// known, and the group too where there is an fsGroup (the group's bit is added when it is written).
func TokenMode(pod *corev1.Pod, mode *int32) fs.FileMode {
	if RunAsUser(pod) != nil || FSGroup(pod) != nil {
		return 0o600
	}
	return modeOf(nil, mode)
}

// RunAsUser is the user that all containers of the pod run as, or nil where they differ or don't say.
func RunAsUser(pod *corev1.Pod) *int64 {
	var user *int64
	for _, sc := range securityContexts(pod) {
		uid := sc
		if uid == nil && pod.Spec.SecurityContext != nil {
			uid = pod.Spec.SecurityContext.RunAsUser
		}
		if uid == nil || (user != nil && *user != *uid) {
			return nil
		}
		user = uid
	}
	return user
}

// securityContexts are the runAsUser of each container, nil where it has none of its own.
func securityContexts(pod *corev1.Pod) []*int64 {
	var users []*int64
	for c := range podspec.Containers(&pod.Spec) {
		var user *int64
		if c.SecurityContext != nil {
			user = c.SecurityContext.RunAsUser
		}
		users = append(users, user)
	}
	return users
}

// FSGroup is the pod's fsGroup or nil.
func FSGroup(pod *corev1.Pod) *int64 {
	if pod.Spec.SecurityContext == nil {
		return nil
	}
	return pod.Spec.SecurityContext.FSGroup
}
