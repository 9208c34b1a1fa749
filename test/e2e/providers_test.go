package e2e

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"kubelot.dev/test/e2e/kit"
	"kubelot.dev/test/testbed/node"
	"kubelot.dev/test/testbed/registry"
)

// The configuration of credential providers; $REG is the registry.
const providers = `apiVersion: kubelet.config.k8s.io/v1
kind: CredentialProviderConfig
providers:
- name: broken
  matchImages: [$REG/team, $REG/plain]
  defaultCacheDuration: 0s
  apiVersion: credentialprovider.kubelet.k8s.io/v1beta1
- name: plain
  matchImages: [$REG/plain]
  defaultCacheDuration: 1h
  apiVersion: credentialprovider.kubelet.k8s.io/v1
  env: [{name: USERNAME, value: somebody}]
- name: tokens
  matchImages: [$REG/team]
  defaultCacheDuration: 1h
  apiVersion: credentialprovider.kubelet.k8s.io/v1
  tokenAttributes:
    serviceAccountTokenAudience: registry.example
    cacheType: ServiceAccount
    requireServiceAccount: true
    requiredServiceAccountAnnotationKeys: [registry.example/role]
`

// A provider answers with the registry's password; $PATTERN are the images that it is for, and $WANTED what its request
// must have.
const providerScript = `#!/bin/sh
request=$(cat)
echo "$request" >>$DIR/requests
case $request in *$WANTED*) ;; *) echo "not that: $request" >&2; exit 1;; esac
echo '{"apiVersion":"credentialprovider.kubelet.k8s.io/v1","kind":"CredentialProviderResponse","cacheKeyType":"Registry",
"auth":{"$PATTERN":{"username":"'${USERNAME:-somebody}'","password":"pass:word"}}}'
`

// The token that a node wants for a provider isn't among the pod's volumes, so the API server asks for a right to it.
const audienceRole = `apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: pull-tokens}
rules: [{apiGroups: [""], resources: [registry.example], verbs: [request-serviceaccounts-token-audience]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: pull-tokens}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: pull-tokens}
subjects: [{kind: Group, name: "system:nodes", apiGroup: rbac.authorization.k8s.io}]
`

// Images of a private registry come with the credentials of providers only. Those that a service account's token has
// brought are for pods of the account.
func TestCredentialProviders(t *testing.T) {
	t.Parallel()
	own := kit.StartWithoutNode(t)
	reg, err := registry.Start()
	if err != nil {
		t.Fatal(err)
	}
	own.Registry = reg // the bed closes it
	plain, team := pushTo(t, own, "plain/app"), pushTo(t, own, "team/app")
	reg.Require("somebody", "pass:word")
	dir := t.TempDir()
	write := func(name, text string, more ...string) string {
		text = strings.NewReplacer(append(more, "$REG", reg.Addr, "$DIR", dir)...).Replace(text)
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
		return path
	}
	write("broken", "#!/bin/sh\necho it has no password: pass:word >&2; exit 7\n")
	write("plain", providerScript, "$PATTERN", reg.Addr+"/plain", "$WANTED", `'"image":"`+reg.Addr+`/plain/app"'`)
	write("tokens", providerScript, "$PATTERN", reg.Addr, "$WANTED", `'"registry.example/role":"puller"'`)
	own.Kubectl(t, "create", "-f", write("role.yaml", audienceRole))
	if err := own.StartNode(t.Context(), node.Kubelot, "--image-credential-provider-bin-dir="+dir,
		"--image-credential-provider-config="+write("config.yaml", providers)); err != nil {
		t.Fatal(err)
	}
	ns := own.Namespace(t)
	ns.Apply(imagePod("plain", plain, "Always"))
	ns.Running("plain")

	ns.Apply("apiVersion: v1\nkind: ServiceAccount\n" +
		"metadata: {name: puller, annotations: {registry.example/role: puller}}\n")
	by := func(name, policy string) string {
		return imagePod(name, team, policy) + "  serviceAccountName: puller\n"
	}
	ns.Apply(by("first", "IfNotPresent"))
	ns.Running("first")
	ns.Apply(by("second", "Never") + "\n---\n" + by("third", "Always") + "\n---\n" +
		imagePod("stranger", team, "IfNotPresent"))
	ns.Running("second")
	ns.Running("third")
	why := pullFails(ns, "stranger")
	if !strings.Contains(why, "credential provider broken: ") || !strings.Contains(why, "exit status 7") ||
		strings.Contains(why, "pass:word") {
		t.Errorf("message of the stranger: %s", why)
	}
	requests, err := os.ReadFile(filepath.Join(dir, "requests"))
	if n := strings.Count(string(requests), `"serviceAccountToken":"ey`); err != nil || n != 1 {
		t.Errorf("%d requests with a token, want one for all pods of the account (%v):\n%s", n, err, requests)
	}
	page := string(own.Page(t, "podsync", "/metrics"))
	for _, line := range []string{
		`kubelet_credential_provider_plugin_duration_count{plugin_name="plain"} 1`,
		`kubelet_credential_provider_plugin_errors_total{plugin_name="broken"} `,
		`kubelet_credential_provider_config_info{hash="sha256:`,
	} {
		if !strings.Contains(page, line) {
			t.Errorf("/metrics of podsync has no %s", line)
		}
	}
}
