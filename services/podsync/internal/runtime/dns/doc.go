// Package dns decides what a pod's resolver and hosts file look like.
//
// # Reads
//
// The pod spec (dnsPolicy, dnsConfig, hostname, subdomain, setHostnameAsFQDN, hostnameOverride,
// hostAliases, hostNetwork) and the node's facts: the cluster's DNS servers and domain, the content of the
// node's resolv.conf and /etc/hosts.
//
// # Writes
//
// Nothing but the hosts file that WriteHosts is told to write.
//
// # Guarantees
//
// Everything else is pure: same input, same output, in the same order. What has to be left out because of the limits of
// resolvers is reported as a Warning.
//
// Source: Kubernetes API reference, PodSpec.dnsPolicy and PodSpec.dnsConfig; KEP-1797 (FQDN as host name),
// KEP-4762 (hostnameOverride); resolv.conf(5), hosts(5).
package dns
