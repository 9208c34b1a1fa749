package auth

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apiserver/pkg/apis/apiserver"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/authenticatorfactory"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/authorization/authorizerfactory"
	"k8s.io/apiserver/pkg/server/dynamiccertificates"
	"k8s.io/client-go/kubernetes"
	kubeletv1beta1 "k8s.io/kubelet/config/v1beta1"
)

// Auth decides about requests.
type Auth struct {
	Rules         Rules
	Authenticator authenticator.Request
	Authorizer    authorizer.Authorizer
	// ClientCA are the authorities of client certificates; nil where there are none.
	ClientCA *dynamiccertificates.DynamicFileCAContent
	log      *slog.Logger
}

// reviewRetry is how often and when a review is tried again: the kubelet's figures.
func reviewRetry() *wait.Backoff {
	return &wait.Backoff{Duration: 500 * time.Millisecond, Factor: 1.5, Jitter: 0.2, Steps: 5}
}

// New makes what the configuration asks for. client is nil in standalone mode: then nobody is known by a token, and
// nothing is allowed by review. It starts nothing; Run does.
func New(k kubeletv1beta1.KubeletConfiguration, rules Rules, client kubernetes.Interface,
	log *slog.Logger,
) (*Auth, error) {
	a := &Auth{Rules: rules, log: log}
	if err := a.authentication(k.Authentication, client); err != nil {
		return nil, fmt.Errorf("authentication: %w", err)
	}
	if err := a.authorization(k.Authorization, client); err != nil {
		return nil, fmt.Errorf("authorization: %w", err)
	}
	return a, nil
}

func (a *Auth) authentication(c kubeletv1beta1.KubeletAuthentication, client kubernetes.Interface) error {
	anonymous := c.Anonymous.Enabled != nil && *c.Anonymous.Enabled
	config := authenticatorfactory.DelegatingAuthenticatorConfig{
		Anonymous: &apiserver.AnonymousAuthConfig{Enabled: anonymous}, CacheTTL: c.Webhook.CacheTTL.Duration,
	}
	methods := anonymous
	if file := c.X509.ClientCAFile; file != "" {
		ca, err := dynamiccertificates.NewDynamicCAContentFromFile("client-ca-bundle", file)
		if err != nil {
			return fmt.Errorf("authorities of client certificates (authentication.x509.clientCAFile): %w", err)
		}
		a.ClientCA, methods = ca, true
		config.ClientCertificateCAContentProvider = ca
	}
	if c.Webhook.Enabled != nil && *c.Webhook.Enabled {
		if client == nil {
			a.log.Warn("can't review tokens without an API server, requests with one are not " +
				"authenticated (authentication.webhook)")
		} else {
			config.TokenAccessReviewClient, config.WebhookRetryBackoff, methods = client.AuthenticationV1(), reviewRetry(), true
		}
	}
	if !methods {
		a.log.Warn("no way of authentication is configured, the HTTPS API refuses every request: set " +
			"authentication.x509.clientCAFile")
		a.Authenticator = authenticator.RequestFunc(func(*http.Request) (*authenticator.Response, bool, error) {
			return nil, false, nil
		})
		return nil
	}
	var err error
	a.Authenticator, _, err = config.New()
	return err
}

func (a *Auth) authorization(c kubeletv1beta1.KubeletAuthorization, client kubernetes.Interface) error {
	switch {
	case c.Mode == kubeletv1beta1.KubeletAuthorizationModeAlwaysAllow:
		a.Authorizer = authorizerfactory.NewAlwaysAllowAuthorizer()
		return nil
	case client == nil:
		a.log.Warn("can't review access without an API server, the HTTPS API allows no request: set " +
			"authorization.mode to AlwaysAllow if you want that")
		a.Authorizer = authorizerfactory.NewAlwaysDenyAuthorizer()
		return nil
	}
	config := authorizerfactory.DelegatingAuthorizerConfig{
		SubjectAccessReviewClient: client.AuthorizationV1(),
		AllowCacheTTL:             c.Webhook.CacheAuthorizedTTL.Duration,
		DenyCacheTTL:              c.Webhook.CacheUnauthorizedTTL.Duration,
		WebhookRetryBackoff:       reviewRetry(),
	}
	var err error
	a.Authorizer, err = config.New()
	return err
}

// Run follows the file of authorities until ctx ends.
func (a *Auth) Run(ctx context.Context) {
	if a.ClientCA != nil {
		a.ClientCA.Run(ctx, 1)
	}
}

// Filter passes allowed requests to next. It answers others in the kubelet's words.
func (a *Auth) Filter(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		who, ok, err := a.Authenticator.AuthenticateRequest(r)
		if err != nil {
			a.log.Debug("can't authenticate a request", "path", r.URL.Path, "from", r.RemoteAddr, "error", err)
		}
		if err != nil || !ok {
			refuse(w, http.StatusUnauthorized, "Unauthorized")
			return
		}
		// Credentials are for this daemon; requests are passed on to the runtime and to other daemons.
		r.Header.Del("Authorization")
		attributes := a.Rules.Attributes(who.User, r)
		for _, attribute := range attributes {
			decision, _, err := a.Authorizer.Authorize(r.Context(), attribute)
			if err != nil {
				text := fmt.Sprintf("Authorization error (user=%s, verb=%s, resource=%s, subresource=%s)",
					who.User.GetName(), attribute.GetVerb(), attribute.GetResource(), attribute.GetSubresource())
				a.log.Warn(text, "error", err)
				refuse(w, http.StatusInternalServerError, text)
				return
			}
			if decision == authorizer.DecisionAllow {
				next.ServeHTTP(w, r)
				return
			}
		}
		var names []string
		for _, attribute := range attributes {
			names = append(names, attribute.GetSubresource())
		}
		refuse(w, http.StatusForbidden, fmt.Sprintf("Forbidden (user=%s, verb=%s, resource=nodes, subresource(s)=%v)\n",
			who.User.GetName(), attributes[0].GetVerb(), names))
	})
}

// refuse answers with a text and ends the connection: nothing more is read from a client without access. A client that
// went away is nobody to tell.
func refuse(w http.ResponseWriter, code int, text string) {
	w.Header().Set("Connection", "close")
	w.WriteHeader(code)
	_, _ = w.Write([]byte(text))
}
