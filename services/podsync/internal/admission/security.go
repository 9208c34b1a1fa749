package admission

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/component-helpers/node/util/sysctl"

	"kubelot.dev/daemon/podspec"
)

// safeSysctls are namespaced and harm no other pod. The youngest of them is in Linux since 4.15.
var safeSysctls = []string{
	"kernel.shm_rmid_forced", "net.ipv4.ip_local_port_range", "net.ipv4.tcp_syncookies", "net.ipv4.ping_group_range",
	"net.ipv4.ip_unprivileged_port_start", "net.ipv4.ip_local_reserved_ports", "net.ipv4.tcp_keepalive_time",
	"net.ipv4.tcp_fin_timeout", "net.ipv4.tcp_keepalive_intvl", "net.ipv4.tcp_keepalive_probes",
	"net.ipv4.tcp_rmem", "net.ipv4.tcp_wmem",
}

// sysctls keeps pods from kernel parameters that aren't theirs alone.
func sysctls(pod *corev1.Pod, facts Facts) *Rejection {
	if pod.Spec.SecurityContext == nil {
		return nil
	}
	for _, s := range pod.Spec.SecurityContext.Sysctls {
		if why := forbidden(s.Name, pod, facts.AllowedUnsafeSysctls); why != "" {
			return &Rejection{Reason: reasonSysctl, Message: "forbidden sysctl: " + why}
		}
	}
	return nil
}

func forbidden(name string, pod *corev1.Pod, allowed []string) string {
	name = sysctl.NormalizeName(name)
	ok := slices.Contains(safeSysctls, name)
	for _, pattern := range allowed {
		_, plain, prefix := sysctl.GetNamespace(pattern)
		ok = ok || name == plain || prefix && strings.HasPrefix(name, plain)
	}
	if !ok {
		return fmt.Sprintf("%q not allowlisted", name)
	}
	ns, _, _ := sysctl.GetNamespace(name)
	switch {
	case ns == sysctl.IPCNamespace && pod.Spec.HostIPC, ns == sysctl.NetNamespace && pod.Spec.HostNetwork:
		return fmt.Sprintf("%q not allowed with host %s enabled", name, ns)
	case ns == sysctl.UnknownNamespace:
		return fmt.Sprintf("%q not allowlisted", name)
	}
	return ""
}

// appArmor keeps pods that ask for a profile off hosts that can't enforce one.
func appArmor(pod *corev1.Pod, facts Facts) *Rejection {
	asked := false
	for _, p := range appArmorProfiles(pod) {
		if p == nil || p.Type == corev1.AppArmorProfileTypeUnconfined {
			continue
		}
		asked = true
		if p.Type == corev1.AppArmorProfileTypeLocalhost && (p.LocalhostProfile == nil ||
			strings.TrimSpace(*p.LocalhostProfile) == "") {
			return appArmorRejection("invalid empty AppArmor profile name")
		}
	}
	for key, value := range pod.Annotations {
		legacy := strings.HasPrefix(key, corev1.DeprecatedAppArmorBetaContainerAnnotationKeyPrefix)
		asked = asked || legacy && value != corev1.DeprecatedAppArmorBetaProfileNameUnconfined
	}
	if asked && !facts.AppArmor {
		return appArmorRejection("AppArmor is not enabled on the host")
	}
	return nil
}

// appArmorProfiles are those of the pod and of its containers; some may be nil.
func appArmorProfiles(pod *corev1.Pod) []*corev1.AppArmorProfile {
	var profiles []*corev1.AppArmorProfile
	if sc := pod.Spec.SecurityContext; sc != nil {
		profiles = append(profiles, sc.AppArmorProfile)
	}
	for c := range podspec.InitAndMain(&pod.Spec) {
		if sc := c.SecurityContext; sc != nil {
			profiles = append(profiles, sc.AppArmorProfile)
		}
	}
	return profiles
}

func appArmorRejection(why string) *Rejection {
	return &Rejection{Reason: reasonAppArmor, Message: "Cannot enforce AppArmor: " + why}
}
