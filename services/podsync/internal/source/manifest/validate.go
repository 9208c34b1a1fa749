package manifest

import (
	"net/netip"
	"regexp"
	"slices"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metavalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// maxUID is the longest UID that a manifest may give its pod.
const maxUID = 128

// plainUID is stricter than Kubernetes, which leaves a manifest's own metadata.uid unchecked: letters, digits and
// dashes.
func plainUID(uid string) bool {
	return uid != "" && len(uid) <= maxUID && strings.IndexFunc(uid, func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && r != '-'
	}) < 0
}

// validate reports everything about a pod that can't work, each with its field path.
func validate(pod *corev1.Pod) error {
	meta := field.NewPath("metadata")
	errs := metavalidation.ValidateObjectMeta(&pod.ObjectMeta, true, metavalidation.NameIsDNSSubdomain, meta)
	if !plainUID(string(pod.UID)) {
		errs = append(errs, field.Invalid(meta.Child("uid"), pod.UID,
			"it names cgroups, directories and bus subjects: use letters, digits and dashes, at most 128, or leave it out"))
	}
	spec := field.NewPath("spec")
	errs = append(errs, validatePodSpec(&pod.Spec, spec)...)
	volumes := map[string]*corev1.Volume{}
	for i := range pod.Spec.Volumes {
		errs = append(errs, validateVolume(&pod.Spec.Volumes[i], volumes, spec.Child("volumes").Index(i))...)
	}
	errs = append(errs, validateContainers(&pod.Spec, volumes, spec)...)
	if len(pod.Spec.EphemeralContainers) > 0 {
		errs = append(errs, field.Forbidden(spec.Child("ephemeralContainers"),
			"a manifest can't have any: they are added to running pods"))
	}
	return errs.ToAggregate()
}

func validatePodSpec(s *corev1.PodSpec, at *field.Path) field.ErrorList {
	errs := oneOf(s.RestartPolicy, at.Child("restartPolicy"),
		corev1.RestartPolicyAlways, corev1.RestartPolicyOnFailure, corev1.RestartPolicyNever)
	errs = append(errs, oneOf(s.DNSPolicy, at.Child("dnsPolicy"),
		corev1.DNSClusterFirst, corev1.DNSClusterFirstWithHostNet, corev1.DNSDefault, corev1.DNSNone)...)
	errs = append(errs, dnsLabel(s.Hostname, at.Child("hostname"))...)
	errs = append(errs, dnsLabel(s.Subdomain, at.Child("subdomain"))...)
	if s.NodeName != "" {
		errs = append(errs, messages(validation.IsDNS1123Subdomain(s.NodeName), s.NodeName, at.Child("nodeName"))...)
	}
	if s.TerminationGracePeriodSeconds != nil && *s.TerminationGracePeriodSeconds < 0 {
		errs = append(errs, field.Invalid(at.Child("terminationGracePeriodSeconds"), *s.TerminationGracePeriodSeconds,
			"must not be negative"))
	}
	if d := s.ActiveDeadlineSeconds; d != nil && (*d < 1 || *d > 1<<31-1) {
		errs = append(errs, field.Invalid(at.Child("activeDeadlineSeconds"), *d, "must be between 1 and 2147483647"))
	}
	errs = append(errs, validateDNS(s, at)...)
	errs = append(errs, validateNames(s, at)...)
	errs = append(errs, validatePodSecurity(s, at.Child("securityContext"))...)
	for i := range s.Tolerations {
		errs = append(errs, validateToleration(&s.Tolerations[i], at.Child("tolerations").Index(i))...)
	}
	errs = append(errs, validateResourceList(s.Overhead, at.Child("overhead"))...)
	if s.Resources != nil {
		errs = append(errs, validateResources(s.Resources, at.Child("resources"))...)
	}
	return errs
}

func validateDNS(s *corev1.PodSpec, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	if s.DNSPolicy == corev1.DNSNone && (s.DNSConfig == nil || len(s.DNSConfig.Nameservers) == 0) {
		errs = append(errs, field.Required(at.Child("dnsConfig", "nameservers"), "dnsPolicy None needs a nameserver"))
	}
	if s.DNSConfig == nil {
		return errs
	}
	here := at.Child("dnsConfig")
	for i, ns := range s.DNSConfig.Nameservers {
		errs = append(errs, address(ns, here.Child("nameservers").Index(i))...)
	}
	for i, search := range s.DNSConfig.Searches {
		if search != "." {
			errs = append(errs, messages(validation.IsDNS1123SubdomainWithUnderscore(strings.TrimSuffix(search, ".")),
				search, here.Child("searches").Index(i))...)
		}
	}
	for i, option := range s.DNSConfig.Options {
		if option.Name == "" {
			errs = append(errs, field.Required(here.Child("options").Index(i), "the option needs a name"))
		}
	}
	return errs
}

// validateNames checks what names things outside the pod.
func validateNames(s *corev1.PodSpec, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	for i, alias := range s.HostAliases {
		here := at.Child("hostAliases").Index(i)
		errs = append(errs, address(alias.IP, here.Child("ip"))...)
		for j, host := range alias.Hostnames {
			errs = append(errs, messages(validation.IsDNS1123Subdomain(host), host, here.Child("hostnames").Index(j))...)
		}
	}
	if s.PriorityClassName != "" {
		errs = append(errs, messages(validation.IsDNS1123Subdomain(s.PriorityClassName), s.PriorityClassName,
			at.Child("priorityClassName"))...)
	}
	if s.RuntimeClassName != nil {
		errs = append(errs, messages(validation.IsDNS1123Subdomain(*s.RuntimeClassName), *s.RuntimeClassName,
			at.Child("runtimeClassName"))...)
	}
	for key, value := range s.NodeSelector {
		here := at.Child("nodeSelector").Key(key)
		errs = append(errs, messages(validation.IsQualifiedName(key), key, here)...)
		errs = append(errs, messages(validation.IsValidLabelValue(value), value, here)...)
	}
	return errs
}

func validatePodSecurity(s *corev1.PodSpec, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	if s.HostPID && s.ShareProcessNamespace != nil && *s.ShareProcessNamespace {
		errs = append(errs, field.Invalid(at.Root().Child("shareProcessNamespace"), true,
			"the pod already has the host's process namespace (hostPID)"))
	}
	sc := s.SecurityContext
	if sc == nil {
		return errs
	}
	errs = append(errs, userID(sc.RunAsUser, at.Child("runAsUser"))...)
	errs = append(errs, userID(sc.RunAsGroup, at.Child("runAsGroup"))...)
	errs = append(errs, userID(sc.FSGroup, at.Child("fsGroup"))...)
	for i := range sc.SupplementalGroups {
		errs = append(errs, userID(&sc.SupplementalGroups[i], at.Child("supplementalGroups").Index(i))...)
	}
	if sc.FSGroupChangePolicy != nil {
		errs = append(errs, oneOf(*sc.FSGroupChangePolicy, at.Child("fsGroupChangePolicy"),
			corev1.FSGroupChangeAlways, corev1.FSGroupChangeOnRootMismatch)...)
	}
	errs = append(errs, validateSeccomp(sc.SeccompProfile, at.Child("seccompProfile"))...)
	errs = append(errs, validateSysctls(sc, at)...)
	return errs
}

// sysctlName is a kernel parameter's name, its parts separated by dots or slashes. It is compiled when it is first
// asked.
var sysctlName = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`^[a-z0-9]([-_a-z0-9]*[a-z0-9])?([./][a-z0-9]([-_a-z0-9]*[a-z0-9])?)*$`)
})

func validateSysctls(sc *corev1.PodSecurityContext, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	seen := map[string]bool{}
	for i, ctl := range sc.Sysctls {
		name := at.Child("sysctls").Index(i).Child("name")
		switch {
		case ctl.Name == "":
			errs = append(errs, field.Required(name, ""))
		case seen[ctl.Name]:
			errs = append(errs, field.Duplicate(name, ctl.Name))
		case len(ctl.Name) > 253 || !sysctlName().MatchString(ctl.Name):
			errs = append(errs, field.Invalid(name, ctl.Name, "must be the name of a kernel parameter, such as "+
				"net.ipv4.tcp_syncookies"))
		}
		seen[ctl.Name] = true
	}
	return errs
}

func validateSeccomp(p *corev1.SeccompProfile, at *field.Path) field.ErrorList {
	if p == nil {
		return nil
	}
	errs := oneOf(p.Type, at.Child("type"), corev1.SeccompProfileTypeLocalhost, corev1.SeccompProfileTypeRuntimeDefault,
		corev1.SeccompProfileTypeUnconfined)
	local := p.Type == corev1.SeccompProfileTypeLocalhost
	switch {
	case local && (p.LocalhostProfile == nil || *p.LocalhostProfile == ""):
		errs = append(errs, field.Required(at.Child("localhostProfile"), "the type Localhost needs a profile"))
	case local:
		errs = append(errs, subPath(*p.LocalhostProfile, at.Child("localhostProfile"))...)
	case p.LocalhostProfile != nil:
		errs = append(errs, field.Invalid(at.Child("localhostProfile"), *p.LocalhostProfile,
			"may only be set with the type Localhost"))
	}
	return errs
}

func validateToleration(t *corev1.Toleration, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	if t.Effect != "" {
		errs = append(errs, oneOf(t.Effect, at.Child("effect"),
			corev1.TaintEffectNoSchedule, corev1.TaintEffectPreferNoSchedule, corev1.TaintEffectNoExecute)...)
	}
	if t.Key != "" {
		errs = append(errs, messages(validation.IsQualifiedName(t.Key), t.Key, at.Child("key"))...)
	}
	switch t.Operator {
	case corev1.TolerationOpEqual, "":
		errs = append(errs, messages(validation.IsValidLabelValue(t.Value), t.Value, at.Child("value"))...)
	case corev1.TolerationOpExists:
	default:
		errs = append(errs, field.NotSupported(at.Child("operator"), t.Operator,
			[]corev1.TolerationOperator{corev1.TolerationOpEqual, corev1.TolerationOpExists}))
	}
	if t.Key == "" && t.Operator != corev1.TolerationOpExists {
		errs = append(errs, field.Invalid(at.Child("operator"), t.Operator, "must be Exists when the key is empty"))
	}
	if t.TolerationSeconds != nil && t.Effect != corev1.TaintEffectNoExecute {
		errs = append(errs, field.Invalid(at.Child("effect"), t.Effect, "must be NoExecute with tolerationSeconds"))
	}
	if t.Operator == corev1.TolerationOpExists && t.Value != "" {
		errs = append(errs, field.Invalid(at.Child("value"), t.Value, "must be empty with the operator Exists"))
	}
	return errs
}

func validateResources(r *corev1.ResourceRequirements, at *field.Path) field.ErrorList {
	errs := validateResourceList(r.Limits, at.Child("limits"))
	errs = append(errs, validateResourceList(r.Requests, at.Child("requests"))...)
	for name, request := range r.Requests {
		limit, ok := r.Limits[name]
		if ok && request.Cmp(limit) > 0 {
			errs = append(errs, field.Invalid(at.Child("requests").Key(string(name)), request.String(),
				"must not exceed the limit "+limit.String()))
		}
	}
	return errs
}

func validateResourceList(list corev1.ResourceList, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	for name, q := range list {
		key := at.Key(string(name))
		errs = append(errs, messages(validation.IsQualifiedName(string(name)), string(name), key)...)
		if q.Cmp(resource.Quantity{}) < 0 {
			errs = append(errs, field.Invalid(key, q.String(), "must not be negative"))
		}
	}
	return errs
}

// oneOf is an error where v is none of the allowed values.
func oneOf[T ~string](v T, at *field.Path, values ...T) field.ErrorList {
	if slices.Contains(values, v) {
		return nil
	}
	return field.ErrorList{field.NotSupported(at, v, values)}
}

func messages(msgs []string, value string, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	for _, m := range msgs {
		errs = append(errs, field.Invalid(at, value, m))
	}
	return errs
}

// dnsLabel checks an optional name of one label.
func dnsLabel(name string, at *field.Path) field.ErrorList {
	if name == "" {
		return nil
	}
	return messages(validation.IsDNS1123Label(name), name, at)
}

func address(ip string, at *field.Path) field.ErrorList {
	if _, err := netip.ParseAddr(ip); err != nil {
		return field.ErrorList{field.Invalid(at, ip, "must be an IP address")}
	}
	return nil
}

func userID(id *int64, at *field.Path) field.ErrorList {
	if id == nil || *id >= 0 && *id <= 1<<31-1 {
		return nil
	}
	return field.ErrorList{field.Invalid(at, *id, "must be between 0 and 2147483647")}
}
