//! The endpoints as routes of axum.

use axum::Router;
use axum::body::Body;
use axum::extract::Request;
use axum::routing::any;

use crate::handler::{self, Handler};

/// Returns the endpoints as routes, under the default [`Config`](crate::Config), to be merged into a service's own:
///
/// ```
/// let app: axum::Router = axum::Router::new().merge(rtprof_http::router());
/// // A service with a state:
/// let app: axum::Router<u32> = axum::Router::new().merge(rtprof_http::router().with_state(()));
/// ```
///
/// The routes are as public as the service is: see [`Handler`].
pub fn router() -> Router {
    handler::shared().router()
}

impl Handler {
    /// Returns the endpoints as routes of axum. See [`router`].
    pub fn router(&self) -> Router {
        let handler = self.clone();
        let answer = move |request: Request| {
            let handler = handler.clone();
            async move { handler.handle(request).await.map(Body::new) }
        };
        Router::new()
            .route("/debug/pprof", any(answer.clone()))
            .route("/debug/pprof/", any(answer.clone()))
            .route("/debug/pprof/{*name}", any(answer))
    }
}
