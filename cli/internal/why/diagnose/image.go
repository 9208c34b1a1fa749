package diagnose

import "strings"

// tryPull is what to do about a failed pull that no rule knows.
const tryPull = "crictl pull {image} on this node shows the whole error"

// status and ended are around an HTTP status. A tag of an image may be the same number: it comes after a colon or a
// slash, or stands in brackets.
const status, ended = `(?:^|[\s(=])`, `(?:[^\]\w]|$)`

// pulls are in the order in which they are tried: what has caused an error comes before what follows from it.
var pulls = []rule{
	{
		"registry-rate-limit",
		`(?i)toomanyrequests|too many requests|` + status + `429` + ended + `|rate limit`,
		"the registry {registry} lets this node pull nothing more for now (rate limit)", "the registry's limit to end",
		"pull with an account: kubectl create secret docker-registry pull -n {ns} --docker-server={registry} " +
			"--docker-username=USER --docker-password=PASSWORD, and name it in the pod's imagePullSecrets",
	},
	{
		"registry-dns", `lookup ([^\s:]+)(?: on \S+)?: (?:no such host|server misbehaving|.*i/o timeout|.*emporary failure|.*refused)`,
		"this node finds no address of {1} (DNS), where its image {image} should come from", "a name server that knows {1}",
		"getent hosts {1} on this node; then correct the image's name, or /etc/resolv.conf",
	},
	{
		"registry-plain-http", `server gave HTTP response to HTTPS client`,
		"the registry {registry} speaks plain HTTP, and this node asks it by HTTPS", "",
		"write server = \"http://{registry}\" into /etc/containerd/certs.d/{registry}/hosts.toml, or give the registry a " +
			"certificate",
	},
	{
		"registry-certificate-unknown", `x509: certificate signed by unknown authority`,
		"this node doesn't trust the certificate of the registry {registry}", "",
		"put its CA into /etc/containerd/certs.d/{registry}/ca.crt, or into the node's trust store",
	},
	{
		"registry-certificate-expired", `x509: certificate has expired or is not yet valid`,
		"the certificate of the registry {registry} has expired, or this node's clock is wrong", "",
		"compare date on this node with: openssl s_client -connect {registry} </dev/null | openssl x509 -noout -dates",
	},
	{
		"registry-certificate-name", `x509: certificate is valid for (.+), not (\S+)`,
		"the certificate of the registry {registry} is for {1}, not for {2}", "",
		"name the registry by {1} in the image's name, or give it a certificate for {2}",
	},
	{
		"registry-certificate-name", `x509: (?:cannot validate certificate for (\S+) because it doesn't contain|` +
			`certificate is not valid for any names, but wanted to match (\S+))`,
		"the certificate of the registry {registry} isn't for {1}{2}", "",
		"give the registry a certificate for {1}{2}, or name it in the image's name as its certificate does",
	},
	{
		"registry-unauthorized", `no basic auth credentials`, // containerd adds this to its pull access denied
		"the registry {registry} wants a login for the image {image} that this pod doesn't have", "",
		"kubectl create secret docker-registry pull -n {ns} --docker-server={registry} --docker-username=USER " +
			"--docker-password=PASSWORD, and name it in the pod's imagePullSecrets",
	},
	{
		"image-denied",
		`pull access denied|insufficient_scope|may require authorization|requested access to the resource is denied`,
		"the image {image} doesn't exist, or the registry {registry} doesn't let this pod have it", "",
		"correct the image's name; if it is private, name a secret with its password in the pod's imagePullSecrets",
	},
	{
		"registry-unauthorized",
		`(?i)` + status + `40[13]` + ended + `|unauthorized|authorization failed|authentication required|forbidden`,
		"the registry {registry} wants a login for the image {image} that this pod doesn't have", "",
		"kubectl create secret docker-registry pull -n {ns} --docker-server={registry} --docker-username=USER " +
			"--docker-password=PASSWORD, and name it in the pod's imagePullSecrets",
	},
	{
		"image-other-platform", `no match for platform in manifest|no matching manifest for|no image found in image index for`,
		"the image {image} isn't made for this node's kind of machine", "",
		"choose an image for it (uname -m on this node), or a node for the image: nodeSelector kubernetes.io/arch",
	},
	{
		"registry-not-one", `could not fetch content descriptor \S+ \((text/\S+)\)`,
		"what answers for the registry {registry} sends a page ({1}) and no image", "",
		"correct the image's name; if a proxy or a network's login page answers: curl -v https://{registry}/v2/ on this node",
	},
	{
		"registry-not-one", `invalid character '<' looking for beginning of value`,
		"what answers for the registry {registry} sends a page (HTML) and no image", "",
		"correct the image's name; if a proxy or a network's login page answers: curl -v https://{registry}/v2/ on this node",
	},
	{
		"image-not-found",
		`(?i): not found|manifest unknown|name unknown|manifest_unknown|name_unknown|` + status + `404` + ended,
		"the image {image} doesn't exist in the registry {registry}", "the image to be pushed",
		"correct the image's name in the spec, or push it there",
	},
	{
		"registry-proxy", `proxyconnect tcp: (.*)`,
		"the proxy through which this node reaches the registry {registry} doesn't work: {1}", "the proxy",
		"see HTTPS_PROXY and NO_PROXY of the runtime: systemctl show containerd -p Environment",
	},
	{
		"registry-refuses-connections", `dial tcp (\S+): connect: connection refused`,
		"nothing listens at {1}, where the registry {registry} should be", "the registry to be started",
		"start the registry, or correct its name in the image's: curl -v https://{registry}/v2/ on this node",
	},
	{
		"registry-unreachable", `dial tcp (\S+): connect: (?:no route to host|network is unreachable)`,
		"this node has no way to {1}, where the registry {registry} is", "the network to the registry",
		"ip route get, and the firewall's rules, on this node: curl -v https://{registry}/v2/",
	},
	{
		"registry-failing", `(?i)` + status + `50[0234]` + ended + `|internal server error|service unavailable|bad gateway`,
		"the registry {registry} fails itself", "the registry to work again",
		"ask who runs the registry; curl -v https://{registry}/v2/ on this node shows what it says",
	},
	{
		"registry-timeout", `i/o timeout|TLS handshake timeout|Client\.Timeout|deadline exceeded|connection reset|EOF$`,
		"the registry {registry} doesn't answer in time, or breaks off", "the network to the registry",
		"curl -v https://{registry}/v2/ on this node; a firewall may drop its packets",
	},
	{
		"registry-tls", `tls: (.*)`,
		"this node and the registry {registry} agree on no secure connection: {1}", "",
		"openssl s_client -connect {registry} on this node shows what the registry offers",
	},
	{
		"disk-full", `no space left on device`,
		"the disk of this node's images is full, so the image {image} can't be stored", "room on the disk",
		"kubelot gc --dry-run --disk-pressure shows what can go; df -h /var/lib/containerd on this node",
	},
	{
		"image-damaged", `(?i)failed to extract layer|unexpected commit digest|digest did not match|checksum|invalid tar|` +
			`failed size validation`,
		"what the registry {registry} delivers of the image {image} is damaged", "",
		"push the image again; " + tryPull,
	},
}

// Pull is why an image can't be pulled.
func Pull(text string, names Names) Finding {
	unknown := rule{"image-pull-fails", "", "", "the next pull to succeed", tryPull}.finding(nil, names)
	return otherwise(pulls, text, names, unknown)
}

// Image is why a container has no image: the reason is the one for which it waits.
func Image(reason, text string, names Names) Finding {
	if strings.Contains(text, "ImageVolume") {
		names.Image = "of a volume"
	}
	for _, r := range images {
		if r.match == reason {
			f := r.finding(nil, names)
			if f.Why == "" {
				f.Why = Innermost(text)
			}
			return f
		}
	}
	return Pull(text, names)
}

// images are the reasons that are no failed pulls; here match is the reason itself.
var images = []rule{
	{
		"image-never-pulled", "ErrImageNeverPull",
		"the image {image} isn't on this node, and imagePullPolicy is Never", "the image to be imported",
		"ctr -n k8s.io images import FILE on this node, or imagePullPolicy: IfNotPresent in the spec",
	},
	{
		"image-name-invalid", "InvalidImageName",
		"{image} can't be the name of an image", "a change of the spec",
		"correct the image's name in the spec: kubectl set image -n {ns} pod/{pod} {container}=NAME",
	},
	{
		"image-not-readable", "ImageInspectError",
		"the runtime can't say whether it has the image {image}", "the runtime's answer",
		"crictl inspecti {image} on this node; then the runtime's log: journalctl -u containerd",
	},
	{
		"registry-unavailable", "RegistryUnavailable",
		"the runtime says that the registry {registry} is unavailable", "the registry to work again",
		"curl -v https://{registry}/v2/ on this node",
	},
	{
		"image-signature", "SignatureValidationFailed",
		"the signature of the image {image} isn't one that this node accepts", "",
		"sign the image, or see the runtime's signature policy: /etc/containers/policy.json",
	},
}
